"""How far a micro-batch may go: everything there is, or a fair share of every partition."""

from collections.abc import Mapping

from tidelog.ids import TopicPartition


def admit(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], records_max: int | None
) -> dict[TopicPartition, int]:
    """The end in each partition so that no more than `records_max` offsets are read in all.

    Each partition gets in proportion to what waits in it, so that a long queue does not starve the short ones, and what
    rounding leaves over goes to the longest queues.
    """
    waiting = {at: max(0, end - starts[at]) for at, end in ends.items()}
    total = sum(waiting.values())
    if records_max is None or total <= records_max:
        return dict(ends)
    shares = {at: count * records_max // total for at, count in waiting.items()}
    left = records_max - sum(shares.values())
    for at in sorted(waiting, key=lambda at: (shares[at] - waiting[at], at)):
        extra = min(left, waiting[at] - shares[at], 1)
        shares[at] += extra
        left -= extra
    return {at: starts[at] + share if waiting[at] else ends[at] for at, share in shares.items()}
