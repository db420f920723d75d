"""A query's position shown in a consumer group as soon as a batch is done.

The stream reader publishes when Spark asks it for the next batch; with a trigger of an hour that is an hour later. A
session made by `tidelog.spark.session` also listens to Spark's own reports, which come soon. Who runs a query to its
end publishes its last position by `publish_end`, and knows that it is there.
"""

import json
import logging
import threading
from collections import deque
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.client.cluster import Cluster
from tidelog.client.group_offsets import commit_offsets
from tidelog.errors import KafkaError
from tidelog.spark.positions import Positions

log = logging.getLogger("tidelog.spark")

TIMEOUT_S = 10.0
"""Reports wait in a queue of Spark's: better one less than a long one."""
_LOCK: Final = threading.Lock()
_ENDED: Final[deque[str]] = deque(maxlen=1000)
"""Runs of queries whose last position is published: what is reported of them later lies before it."""


def publish(end_offset: str | None) -> None:
    """Commits the position in a progress report, if it is one of ours and names a group."""
    try:
        positions = Positions.from_json(json.loads(end_offset or "{}"))
    except ValueError:
        return  # of another source
    if positions.group is None or positions.servers is None:
        return
    try:
        with Cluster(positions.servers, client_id="tidelog-spark", timeout_s=TIMEOUT_S) as cluster:
            commit_offsets(cluster, positions.group, positions.places)
    except (KafkaError, OSError) as error:
        log.warning("group %s does not show the position of its query: %s", positions.group, error)


def publish_end(query: StreamingQuery) -> None:
    """Of a query that has ended: its report may still wait in Spark's queue, and be gone with the process."""
    last = query.lastProgress
    if last is not None:
        with _LOCK:
            _ENDED.append(str(query.runId))
            for source in last.sources:
                publish(source.endOffset)


class GroupProgress(StreamingQueryListener):
    """Added to a session by `spark.streams.addListener(GroupProgress())`; needed in none, see above."""

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        with _LOCK:
            if str(event.progress.runId) not in _ENDED:
                for source in event.progress.sources:
                    publish(source.endOffset)

    def onQueryTerminated(self, event: Any) -> None:
        pass
