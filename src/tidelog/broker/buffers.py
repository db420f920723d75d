"""Read buffers: one that all connections share, and big ones lent for the length of one frame."""

from typing import Final

SHARED: Final = 64 * 1024
GRANT: Final = 4 * 1024 * 1024
"""Room given to a frame on its word alone. Beyond it, room grows only as fast as bytes really arrive."""
GRANTED_MAX: Final = 64 * 1024 * 1024
"""Of all connections together. A word costs eight bytes, so a thousand of them must not be worth gigabytes."""
KEEP: Final = 8
"""Buffers kept for reuse: enough for the connections that can make progress at once."""


class BufferPool:
    def __init__(self) -> None:
        self.shared = bytearray(SHARED)
        """Where every read begins. Whoever needs bytes for longer than one turn of the loop copies them out."""
        self._free: list[bytearray] = []
        self._lent = 0

    def take(self, wanted: int, *, received: int) -> bytearray:
        on_its_word = GRANT if self._lent + min(wanted, GRANT) <= GRANTED_MAX else SHARED
        buffer = self._find(max(min(wanted, max(on_its_word, 2 * received)), received + 1))
        self._lent += len(buffer)
        return buffer

    def _find(self, size: int) -> bytearray:
        for index, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._free.pop(index)
        if SHARED < size <= GRANT:
            size = 1 << (size - 1).bit_length()  # rounded up, so that frames of similar sizes can share buffers
        return bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        if buffer is self.shared:
            return
        self._lent -= len(buffer)
        if SHARED < len(buffer) <= GRANT and len(self._free) < KEEP:
            self._free.append(buffer)
