"""PySpark on Tidelog (or any Kafka): the data source `tidelog` and the session it likes best.

    from tidelog.spark import session
    spark = session("orders-report")
    orders = spark.read.format("tidelog").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

A reader is planned on the driver (`options`, `positions`, `slices`), runs in Spark's Python workers (`reading`,
`workers`), and makes Arrow of raw Fetch answers (`columns`). `read_topics` (`frames`) feeds the same reader to Spark
another way, with one copy less. An ordinary client of the protocol: nothing here knows our broker.
"""  # noqa: E501 - a line of code to copy

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.spark.frames import read_topics
    from tidelog.spark.source import TidelogDataSource
    from tidelog.spark.spark_session import session

__all__ = ["TidelogDataSource", "read_topics", "session"]


def __getattr__(name: str) -> Any:
    # Late: Spark's workers import this package, and most of them need neither a session nor the planner.
    if name == "session":
        from tidelog.spark.spark_session import session

        return session
    if name == "read_topics":
        from tidelog.spark.frames import read_topics

        return read_topics
    if name == "TidelogDataSource":
        from tidelog.spark.source import TidelogDataSource

        return TidelogDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
