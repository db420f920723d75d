"""A Spark session with the settings that the source and sink need to be fast.

The data source itself needs no session of ours: PySpark finds it by the module `pyspark_tidelog`."""

import os
import socket
import sys
import threading
from contextlib import nullcontext
from typing import Any, Final
from weakref import WeakSet

from pyspark.sql import SparkSession

from tidelog.spark.home import lean_home
from tidelog.spark.jvm import ensure_java
from tidelog.spark.options import option_text
from tidelog.spark.progress import GroupProgress

MASTER: Final = "local[*]"
SETTINGS: Final = {
    # With the default Spark measures every row it sends to Python: a tenth of the speed where a column is null.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
if hasattr(socket, "AF_UNIX"):
    # Between Spark and its Python workers: cheaper for both sides than TCP over loopback.
    SETTINGS["spark.python.unix.domain.socket.enabled"] = "true"
_JAVA: Final = "spark.driver.extraJavaOptions"
_LOCAL: Final = {
    # Loopback: a laptop whose name does not resolve, or that changes networks, still works.
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    # Spark asks for every value whether it is null before it reads it, and every batch was made by pyarrow: Arrow need
    # not check both again per value.
    _JAVA: "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false",
}


_LOCK: Final = threading.Lock()
_LISTENED: Final[WeakSet[SparkSession]] = WeakSet()


def session(app_name: str, master: str | None = None, **conf: Any) -> SparkSession:
    """The session of this process, made if there is none.

    `master` is `local[*]` unless given here, by `spark-submit` or by SPARK_MASTER / a `spark.master` setting. Further
    settings are named with underscores or given as a mapping: `session("x", **{"spark.sql.shuffle.partitions": 8})`.
    """
    ensure_java()
    # Workers must have the packages that this process has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    given = {name.replace("_", ".") if "." not in name else name: option_text(value) for name, value in conf.items()}
    builder = SparkSession.Builder().appName(app_name)
    submitted = "PYSPARK_SUBMIT_ARGS" in os.environ or "SPARK_ENV_LOADED" in os.environ
    chosen = master or given.pop("spark.master", None) or os.environ.get("SPARK_MASTER")
    if chosen is None and not submitted:
        chosen = MASTER
    if chosen is not None:
        builder = builder.master(chosen)
    is_local = chosen is not None and chosen.startswith("local")
    settings = SETTINGS | (_LOCAL if is_local else {}) | given
    if is_local and _JAVA in given:
        settings[_JAVA] = f"{_LOCAL[_JAVA]} {given[_JAVA]}"  # the user's come last, and win
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Elsewhere executors have a home and a Python of their own.
    lean = is_local and "spark.pyspark.python" not in given
    with lean_home() if lean else nullcontext():
        spark = builder.getOrCreate()
    with _LOCK:
        if spark not in _LISTENED:
            spark.streams.addListener(GroupProgress())
            _LISTENED.add(spark)
    return spark
