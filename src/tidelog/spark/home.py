"""A SPARK_HOME from which Spark's Python processes start in a third of the time.

Spark puts `python/lib/pyspark.zip` of its home in front of the modules that each of its Python processes finds. Modules
in a zip are compiled again by every process: most of a second, a dozen times until a pipeline has its first row. The
same modules lie, compiled, where this process has imported them from. So the home that a local Spark is given here is
that of the package, link by link, without the zip.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark

from tidelog.spark.jvm import cache_dir

_PARTS: Final = ("bin", "conf", "data", "jars", "kubernetes", "licenses", "sbin", "RELEASE")
_PYTHON: Final = "PYSPARK_PYTHON"


@contextmanager
def lean_home() -> Iterator[Path | None]:
    """SPARK_HOME is such a home meanwhile, for a JVM to start with; None if that cannot be or is not wanted."""
    home = find_home()
    if home is None:
        yield None
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield home
    finally:
        del os.environ["SPARK_HOME"]


def find_home(package: Path | None = None) -> Path | None:
    """Made if it is not there. None where somebody has chosen a home, or workers whose modules we do not know."""
    if "SPARK_HOME" in os.environ or os.name == "nt":
        return None
    workers = shutil.which(os.environ.get(_PYTHON) or sys.executable)
    if workers is None or Path(workers).absolute() != Path(sys.executable).absolute():
        return None
    package = package or Path(pyspark.__file__).absolute().parent
    if not (package / "jars").is_dir() or not (package / "bin").is_dir():
        return None  # the client alone
    number = hashlib.sha256(str(package).encode()).hexdigest()[:12]
    home = cache_dir() / f"spark-{pyspark.__version__}-{number}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in _PARTS:
            # Others may be starting, too: who comes second finds the link.
            if (package / name).exists():
                with suppress(FileExistsError):
                    (home / name).symlink_to(package / name)
    except OSError:
        return None  # a disk without links
    return home
