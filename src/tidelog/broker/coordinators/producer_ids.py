"""Producer ids at hand: reserved in the metadata a block at a time, so that giving one out costs nothing."""

from tidelog.broker.metadata import Metadata
from tidelog.cluster import controller
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord
from tidelog.errors import ErrorCode, KafkaError


class ProducerIds:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._block = range(0)

    @property
    def at_hand(self) -> bool:
        return bool(self._block)

    def take(self) -> int:
        """An id that no producer ever had."""
        if not self._block:
            raise KafkaError("no producer id is at hand; try again", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def reserve(self) -> None:
        """Until there is one to take."""
        reserved = range(0)

        def decide(image: MetadataImage) -> list[AnyRecord]:
            nonlocal reserved
            # Somebody who waited with us may have fetched the block meanwhile.
            if self._block:
                return []
            reserved, records = controller.allocate_producer_ids(image)
            return records

        while not self._block:
            await self._metadata.change(decide)
            # Only now, when no restart can hand these out again.
            self._block = self._block or reserved
