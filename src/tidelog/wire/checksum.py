"""CRC-32C, by the extension inside the `crc32c` package.

The package looks its own version up when it is imported, for which Python reads its parsers of mail and of archives: a
fifteenth of the time a broker took to start. So the extension is loaded from where the package is, without the rest.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

__all__ = ["crc32c"]


def _extension() -> Any:
    package = find_spec("crc32c")
    if package is None or (found := PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)) is None:
        raise ImportError("crc32c has no extension where it used to be")
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    try:
        crc32c = _extension().crc32c
    except (ImportError, AttributeError):  # another release may be built otherwise; the slow way it must have
        from crc32c import crc32c
