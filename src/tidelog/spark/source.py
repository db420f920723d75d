"""The data source `tidelog`: what `format("tidelog")` finds."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidelog.spark.options import parse_columns, parse_options
from tidelog.spark.schema import full_schema
from tidelog.spark.value_schema import value_type


class TidelogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        columns = parse_columns(self.options)
        return full_schema(columns.include_headers, value_type(columns.value_format, columns.value_schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.batch import TidelogBatchReader

        return TidelogBatchReader(parse_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidelog.spark.streaming import TidelogStreamReader

        return TidelogStreamReader(parse_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.spark.sink import sink_writer

        return sink_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tidelog.spark.sink import stream_sink_writer

        return stream_sink_writer(self.options, schema, overwrite)
