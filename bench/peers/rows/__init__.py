"""Every row, in the order in which a run takes them. Rows that want the same brokers are neighbours."""

from bench.peers.rows import (
    cluster,
    compaction,
    coordination,
    footprint,
    growth,
    history,
    latency,
    others,
    produce,
    recovery,
    width,
)
from bench.peers.rows.row import Row

_ONE_RECORD, _ONE_RECORD_SYNCED, *_END_TO_END = latency.ROWS
ROWS: tuple[Row, ...] = (
    _ONE_RECORD,
    *produce.ROWS,
    _ONE_RECORD_SYNCED,
    *produce.SYNCED_ROWS,
    *_END_TO_END,
    *history.ROWS,
    *width.ROWS,
    *growth.ROWS,
    *coordination.ROWS,
    *compaction.ROWS,
    *cluster.ROWS,
    *footprint.ROWS,
    *recovery.ROWS,
    *others.ROWS,
)
