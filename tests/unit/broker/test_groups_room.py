"""The groups' coordinator, as its partitions come and go."""

import asyncio
import gc
from pathlib import Path

from tidelog.broker.coordinators.groups import OFFSETS_TOPIC
from tidelog.broker.node import Node
from tidelog.config import BrokerConfig
from tidelog.groups.consumer_groups import ConsumerGroups


def test_a_partition_that_is_led_again_and_again_leaves_nothing_behind(tmp_path: Path) -> None:
    def rooms() -> int:
        gc.collect()
        return sum(isinstance(each, ConsumerGroups) for each in gc.get_objects())

    before = rooms()

    async def lead_again(times: int) -> None:
        node = Node(
            BrokerConfig(
                listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=(str(tmp_path),), offsets_topic_num_partitions=2
            )
        )
        await node.start()
        try:
            await node.groups.coordinator.ensure_topic()
            for _ in range(times):
                for number in range(2):
                    node.groups.coordinator.adopt(node.partitions.get(OFFSETS_TOPIC, number))
                await asyncio.sleep(0.01)
            async with asyncio.timeout(60):
                while rooms() - before != 2:  # as long as the last ones are still being loaded
                    await asyncio.sleep(0.01)
        finally:
            await node.stop()

    asyncio.run(lead_again(5))
