"""A disk in memory that can lose power.

Every file is a page cache and a durable image. `sync` copies one to the other; `crash` decides, sector by sector with
seeded dice, which unsynced writes survived. Names behave like files: a creation, rename or removal is certain only
after its directory was synced, and before that survives or not as a prefix of what happened: everywhere with a journal,
in its directory without.
"""

import errno
from random import Random

SECTOR = 512


class SimInode:
    def __init__(self) -> None:
        self.cache = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()

    def write(self, position: int, data: bytes) -> None:
        if position > len(self.cache):
            self.cache.extend(bytes(position - len(self.cache)))
        self.cache[position : position + len(data)] = data
        self.dirty.update(range(position // SECTOR, (position + len(data) + SECTOR - 1) // SECTOR))

    def truncate(self, size: int) -> None:
        del self.cache[size:]
        self.cache.extend(bytes(size - len(self.cache)))
        self.dirty.add(size // SECTOR)

    def sync(self) -> None:
        self.durable[:] = self.cache
        self.dirty.clear()

    def lose_power(self, dice: Random) -> None:
        size = len(self.durable)
        if self.dirty:
            # A growing file may have got any of the sizes on the way; a cut one has the old or the new.
            grown = dice.randint(size, len(self.cache)) if len(self.cache) > size else size
            size = dice.choice([size, len(self.cache), grown])
        survivor = self.durable[:size] + bytes(max(0, size - len(self.durable)))
        for sector in sorted(self.dirty):
            if dice.random() < 0.5:
                start, end = sector * SECTOR, min((sector + 1) * SECTOR, size, len(self.cache))
                if start < end:
                    survivor[start:end] = self.cache[start:end]
        self.cache = survivor
        self.sync()


class SimFile:
    def __init__(self, disk: "SimDisk", path: str, inode: SimInode) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path
        self.failed = False
        self.size = len(inode.cache)

    def append(self, data: bytes | bytearray | memoryview) -> int:
        try:
            self._disk.before("write", self.path)
        except OSError:
            self.failed = self._disk.fail_on.pop("undo", 0) != 0  # the write failed, and so did taking it back
            raise
        position = self.size
        self._inode.write(position, bytes(data))
        self.size = position + len(data)
        return position

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._inode.cache[position : position + length])

    def read_cached(self, position: int, length: int) -> bytes | None:
        return self.read(position, length)

    def truncate(self, size: int) -> None:
        self._disk.before("truncate", self.path)
        self._inode.truncate(size)
        self.size = size

    def sync(self) -> None:
        self._disk.before("sync", self.path)
        self._inode.sync()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


class SimLock:
    def release(self) -> None:
        pass


class PowerLost(BaseException):
    """Raised in the middle of an operation: the machine is gone."""


class SimDisk:
    """`crash_after` counts down over every operation that changes something, and then the power goes."""

    def __init__(self, *, journaled: bool = True) -> None:
        self._journaled = journaled
        self.names: dict[str, SimInode] = {}
        self.directories: set[str] = set()
        self._durable_names: dict[str, SimInode] = {}
        self._pending: list[tuple[str, dict[str, SimInode]]] = []  # (directory, names after the change)
        self._numbers = 0
        self.crash_after: int | None = None
        self.fail_on: dict[str, int] = {}  # operation to errno, once
        self.operations = 0

    def before(self, operation: str, path: str) -> None:
        self.operations += 1
        if self.crash_after is not None:
            if self.crash_after <= 0:
                raise PowerLost(f"{operation} {path}")
            self.crash_after -= 1
        if operation in self.fail_on:
            raise OSError(self.fail_on.pop(operation), operation, path)

    def _changed(self, path: str) -> None:
        self._pending.append((path.rpartition("/")[0], dict(self.names)))

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if path not in self.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.before("create", path)
            self.names[path] = SimInode()
            self._changed(path)
        return SimFile(self, path, self.names[path])

    def read_all(self, path: str) -> bytes:
        return self.open(path).read(0, 1 << 40)

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._numbers += 1
        temporary = f"{path}.{self._numbers}.tmp"
        file = self.open(temporary, create=True)
        file.append(data)
        if durable:
            file.sync()
        self.rename(temporary, path)
        if durable:
            self.sync_dir(path.rpartition("/")[0])

    def rename(self, source: str, target: str) -> None:
        self.before("rename", source)
        inside = [name for name in self.names if name.startswith(source + "/")]
        if source not in self.names and not inside:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if source in self.names:
            self.names[target] = self.names.pop(source)
        for name in inside:
            self.names[target + name[len(source) :]] = self.names.pop(name)
        self._changed(target)
        if inside and not self._journaled:  # of a directory, which moves names of two others: survives at once
            self._durable_names = dict(self.names)
            self._pending.clear()

    def remove(self, path: str) -> None:
        if path in self.names:
            self.before("remove", path)
            del self.names[path]
            self._changed(path)

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.names if name.startswith(path + "/")]:
            self.remove(name)
        self.directories.discard(path)

    def listdir(self, path: str) -> list[str]:
        return sorted({name[len(path) + 1 :].split("/")[0] for name in self.names if name.startswith(path + "/")})

    def sizes(self, path: str) -> dict[str, int]:
        prefix = path + "/"
        return {
            name[len(prefix) :]: len(inode.cache)
            for name, inode in self.names.items()
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        }

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def make_dir(self, path: str) -> None:
        self.directories.add(path)

    def sync_dir(self, path: str) -> None:
        self.before("sync_dir", path)
        if self._journaled:  # it commits everything before it as well
            self._durable_names = dict(self.names)
            self._pending.clear()
        else:
            self._durable_names = _in_place_of(path, self.names, self._durable_names)
            self._pending = [(directory, names) for directory, names in self._pending if directory != path]

    def lock(self, path: str) -> SimLock:
        return SimLock()

    def crash(self, dice: Random) -> None:
        """The power goes and comes back. What was not synced may or may not be there."""
        self.names = dict(self._durable_names)
        if self._journaled:
            survived = dice.randint(0, len(self._pending))
            self.names = dict(self._pending[survived - 1][1]) if survived else self.names
        else:
            for path in dict.fromkeys(directory for directory, _ in self._pending):
                states = [self.names, *(names for directory, names in self._pending if directory == path)]
                self.names = _in_place_of(path, dice.choice(states), self.names)
        for inode in {id(inode): inode for inode in self.names.values()}.values():
            inode.lose_power(dice)
        self._durable_names = dict(self.names)
        self._pending.clear()
        self.crash_after = None
        self.fail_on.clear()


def _in_place_of(path: str, new: dict[str, SimInode], old: dict[str, SimInode]) -> dict[str, SimInode]:
    """What `new` has in this directory, and what `old` has elsewhere."""
    kept = {name: inode for name, inode in old.items() if name.rpartition("/")[0] != path}
    return kept | {name: inode for name, inode in new.items() if name.rpartition("/")[0] == path}
