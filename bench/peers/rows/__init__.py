"""Every row, in the order in which a run takes them."""

from bench.peers.rows import latency, produce
from bench.peers.rows.row import Row

_ONE_RECORD, _ONE_RECORD_SYNCED, *_END_TO_END = latency.ROWS
ROWS: tuple[Row, ...] = (
    _ONE_RECORD,
    *produce.ROWS,
    _ONE_RECORD_SYNCED,
    *produce.SYNCED_ROWS,
    *_END_TO_END,
)
