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
    retention,
    spark,
    width,
)
from bench.peers.rows.row import Row

ROWS: tuple[Row, ...] = (
    latency.ONE_RECORD,
    latency.ONE_RECORD_AWAKE,
    *produce.ROWS,
    latency.ONE_RECORD_SYNCED,
    latency.ONE_RECORD_SYNCED_AWAKE,
    *produce.SYNCED_ROWS,
    *latency.END_TO_END,
    *history.ROWS,
    *width.ROWS,
    *growth.ROWS,
    *coordination.ROWS,
    *compaction.ROWS,
    *retention.ROWS,
    *cluster.ROWS,
    *footprint.ROWS,
    *recovery.ROWS,
    *spark.ROWS,
    *others.ROWS,
)
