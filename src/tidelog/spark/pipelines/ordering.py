"""Records of a key in the order of the log, for pipelines that shuffle them on their way from topic to topic."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_PLACE = ("partition", "offset")
_ROWS = 1 << 16


def in_order(frame: DataFrame) -> DataFrame:
    """All records of a key in one task, sorted by their place in the log; `partition` and `offset` are gone.

    A stream cannot be sorted by Spark, so a task sorts what it has: a batch divided by the number of tasks must fit
    into memory. Records without a key have no order to keep, and are spread.
    """
    kept = [field for field in frame.schema.fields if field.name not in _PLACE]
    schema = type(frame.schema)(kept)
    return frame.repartition(F.coalesce("key", "value")).mapInArrow(in_order_of_log, schema)


def in_order_of_log(batches: Iterator[Any]) -> Iterator[Any]:
    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    table = table.sort_by([(name, "ascending") for name in _PLACE]).drop_columns(list(_PLACE))
    yield from table.to_batches(max_chunksize=_ROWS)
