"""The sink: rows become records of topics, at least once or exactly once.

`schema` checks and `columns` opens what Spark hands over, `kernel` places and encodes it (compiled), `batches` makes
record batches of it, `producer` sends them, `transactions` and `ledger` see to it that a micro-batch counts once, and
`writer` is what Spark calls. How exactly once works is told in `ledger`.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.sink.options import parse_options


def sink_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """For `df.write.format("tidelog")`. A log can only be appended to."""
    from tidelog.spark.sink.writer import TidelogBatchWriter

    if overwrite:
        raise InvalidOption("a topic cannot be overwritten, only appended to: use mode('append')")
    return TidelogBatchWriter(parse_options(options, streaming=False), schema)


def stream_sink_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """For `df.writeStream.format("tidelog")`. Output mode complete sends every row anew, as Spark's Kafka sink does."""
    from tidelog.spark.sink.writer import TidelogStreamWriter

    return TidelogStreamWriter(parse_options(options, streaming=True), schema)
