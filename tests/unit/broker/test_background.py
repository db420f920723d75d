"""Work by the clock on a full disk: what can be freed is freed."""

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

from test_partitions import Scene, topic

from tidelog.broker.background import Background
from tidelog.clock import SystemClock
from tidelog.cluster.image import TOPIC_RESOURCE
from tidelog.cluster.records import ConfigRecord


def test_a_log_that_cannot_begin_a_new_segment_keeps_no_other_from_retention() -> None:
    """All that it has is too old, so it needs an empty one. The next has the same and the space; and the checkpoint,
    which has none, does not keep files that nobody reads any more."""

    async def story() -> None:
        scene = Scene()
        keeps = [ConfigRecord(TOPIC_RESOURCE, name, "retention.ms", "1") for name in ("orders", "payments")]
        await scene.follow(*topic("orders", 1), *topic("payments", 2), *topic("users", 3), *keeps)
        for name in ("orders", "payments", "users"):
            scene.write(name)
            replica = scene.partitions.get(name, 0)
            replica.log.flush()
            replica.raise_watermark(1)
        scene.partitions.get("users", 0).advance_start_offset(1)  # which is not on disk yet
        scene.disk.full = {"orders-0", "checkpoint"}
        nobody = cast(Any, None)
        background = Background(nobody, scene.partitions, nobody, nobody, nobody, nobody, nobody, SystemClock())
        await background.enforce_retention()
        assert scene.partitions.get("payments", 0).log.start_offset == 1
        left = [name for name in scene.disk.listdir("/data/payments-0") if name.endswith(".log")]
        assert left == ["00000000000000000001.log"]

    asyncio.run(story())
