"""How kernels are compiled: once, without the GIL, kept on disk where a place for that can be found."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numba.core.cgutils
import numba.core.imputils
import numba.extending
import numba.np.arrayobj

# numba annotates only a part of what it has, and that part for its own use.
_numba: Any = numba
types: Any = numba.core.types

F = TypeVar("F", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.uint8[::1]
I64 = types.int64[::1]
I32 = types.int32[::1]
TABLE = types.int64[:, ::1]
Number = types.int64
Pair = types.UniTuple(types.int64, 2)


def compiled(signature: Any) -> Callable[[F], F]:
    """Like `numba.njit` with this signature. The first process on a machine compiles, others load what it kept."""

    def compile_it(function: F) -> F:
        try:
            result: F = _numba.njit(signature, nogil=True, cache=True)(function)
        except RuntimeError as error:
            # Neither the package's directory nor a user's cache directory can be written: compile in every process.
            if "cannot cache" not in str(error):
                raise
            result = _numba.njit(signature, nogil=True)(function)
        return result

    return compile_it


def inlined(function: F) -> F:
    """A helper of kernels, compiled into them."""
    result: F = _numba.njit(nogil=True)(function)
    return result


def _copy_bytes(typing: Any, into: Any, into_at: Any, source: Any, source_at: Any, count: Any) -> Any:
    make_array, memcpy = _numba.np.arrayobj.make_array, _numba.core.cgutils.raw_memcpy

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = make_array(signature.args[0])(context, builder, args[0])
        origin = make_array(signature.args[2])(context, builder, args[2])
        memcpy(builder, builder.gep(target.data, [args[1]]), builder.gep(origin.data, [args[3]]), args[4], 1)
        return context.get_dummy_value()

    return types.void(into, types.int64, source, types.int64, types.int64), generate


copy_bytes: Any = _numba.extending.intrinsic(_copy_bytes)
"""memcpy between byte arrays. Checks nothing: kernels have checked both ranges before."""
