"""Spark's Python workers serve many tasks, and walk over all their objects after each of them.

That full garbage collection takes as long as reading a million rows once numba, pyarrow and PySpark are loaded. Modules
live as long as their process: the collector need not look at them.
"""

import gc
from functools import cache


@cache
def keep_modules(imported_for: str) -> None:
    """Once per process and purpose, after the imports that it takes: what there is now is not looked at again."""
    gc.freeze()
