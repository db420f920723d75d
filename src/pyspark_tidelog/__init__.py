"""Found by PySpark itself: every top-level module `pyspark_*` with a `DefaultSource` is registered when a session first
looks for a data source, so `format("tidelog")` works wherever the package is installed."""

from tidelog.spark.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
