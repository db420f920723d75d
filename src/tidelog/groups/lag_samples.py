"""Where each group stood lately, partition by partition: what a trend is made of.

A fixed number of samples per group and partition, in flat arrays: a thousand groups of twelve partitions cost
megabytes, not more the longer they live.
"""

from array import array
from typing import Final, NamedTuple

from tidelog.ids import TopicPartition

SAMPLES_MAX: Final = 30
_FIELDS: Final = 3


class LagSample(NamedTuple):
    at_ms: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(self.end - self.committed, 0)


class LagSamples:
    def __init__(self) -> None:
        self._rings: dict[tuple[str, TopicPartition], array[int]] = {}
        self._seen: set[tuple[str, TopicPartition]] = set()

    def begin_round(self) -> None:
        self._seen = set()

    def note(self, group_id: str, partition: TopicPartition, sample: LagSample) -> None:
        key = (group_id, partition)
        self._seen.add(key)
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = array("q")
        ring.extend(sample)
        if len(ring) > SAMPLES_MAX * _FIELDS:
            del ring[:_FIELDS]

    def end_round(self) -> None:
        """Forget groups and partitions that were not there any more in this round."""
        self._rings = {key: ring for key, ring in self._rings.items() if key in self._seen}

    def of(self, group_id: str, partition: TopicPartition) -> tuple[LagSample, ...]:
        """Oldest first."""
        ring = self._rings.get((group_id, partition), ())
        return tuple(LagSample(*ring[i : i + _FIELDS]) for i in range(0, len(ring), _FIELDS))

    def __len__(self) -> int:
        return len(self._rings)
