"""Big read buffers, lent to a connection for the length of one big frame."""

from typing import Final

GRANT: Final = 4 * 1024 * 1024
"""Room given to a frame on its word alone. Beyond it, room grows only as fast as bytes really arrive."""
KEEP: Final = 8
"""Buffers kept for reuse: enough for the connections that can make progress at once."""


class BufferPool:
    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, wanted: int, *, received: int) -> bytearray:
        size = min(wanted, max(GRANT, 2 * received))
        for index, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._free.pop(index)
        # Rounded up, so that frames of slightly different sizes can share buffers.
        return bytearray(1 << (size - 1).bit_length() if size <= GRANT else size)

    def give_back(self, buffer: bytearray) -> None:
        if len(buffer) <= GRANT and len(self._free) < KEEP:
            self._free.append(buffer)
