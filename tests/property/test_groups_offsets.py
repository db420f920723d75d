"""Committed offsets against a dictionary: plain commits, transactions, deletions in any order, and the log replayed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.groups.offsets import Offsets
from tidelog.groups.records import GroupRecord, OffsetCommitKey, OffsetCommitValue, decode_record, encode_record
from tidelog.ids import NO_PRODUCER_ID, TopicPartition

Where = tuple[str, str, int]

places = st.tuples(st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 2))
producers = st.integers(1, 3)
events = st.one_of(
    st.tuples(st.just("commit"), places),
    st.tuples(st.just("pending"), places, producers),
    st.tuples(st.just("marker"), producers, st.booleans()),
    st.tuples(st.just("delete"), places),
)


class Model:
    """What a reader may see, in the plainest way: the log is read from the beginning for each question."""

    def __init__(self) -> None:
        self.log: list[tuple[str, object, object, int]] = []

    def visible(self) -> dict[Where, int]:
        seen: dict[Where, tuple[int, int]] = {}  # record offset, value
        pending: dict[tuple[int, Where], tuple[int, int]] = {}
        for at, (what, place, more, value) in enumerate(self.log):
            if what == "commit":
                seen[place] = (at, value)  # type: ignore[index]
            elif what == "pending":
                pending[more, place] = (at, value)  # type: ignore[index]
            elif what == "delete":
                seen.pop(place, None)  # type: ignore[call-overload]
                pending = {key: entry for key, entry in pending.items() if key[1] != place}
            else:
                for key, entry in list(pending.items()):
                    if key[0] == place:
                        del pending[key]
                        if more and entry[0] > seen.get(key[1], (-1, 0))[0]:
                            seen[key[1]] = entry
        return {place: value for place, (_, value) in seen.items()}


def apply(offsets: Offsets, at: int, event: tuple[str, object, object, int]) -> None:
    what, place, more, value = event
    if what == "marker":
        offsets.replay_marker(place, bool(more))  # type: ignore[arg-type]
        return
    group, topic, partition = place  # type: ignore[misc]
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    body = None if what == "delete" else OffsetCommitValue(offset=value, metadata="", commit_timestamp=at)
    record = decode_record(*encode_record(GroupRecord(key, body)))
    assert record is not None
    offsets.replay(record.key, record.value, at, more if what == "pending" else NO_PRODUCER_ID)  # type: ignore[arg-type]


def visible(offsets: Offsets) -> dict[Where, int]:
    return {
        (group, partition.topic, partition.partition): committed.offset
        for group in offsets.groups()
        for partition, committed in offsets.of(group).items()
    }


@settings(max_examples=400, deadline=None)
@given(st.lists(events, max_size=40))
def test_offsets_against_a_dictionary(history: list[tuple[object, ...]]) -> None:
    offsets, model = Offsets(), Model()
    for at, (what, place, *more) in enumerate(history):
        event = (str(what), place, more[0] if more else None, at)
        model.log.append(event)
        apply(offsets, at, event)
        assert visible(offsets) == model.visible()
    again = Offsets()
    for at, event in enumerate(model.log):
        apply(again, at, event)
    assert again.dump() == offsets.dump()


@settings(max_examples=200, deadline=None)
@given(st.lists(events, max_size=40))
def test_nothing_is_left_when_everything_is_deleted_and_ended(history: list[tuple[object, ...]]) -> None:
    offsets = Offsets()
    for at, (what, place, *more) in enumerate(history):
        apply(offsets, at, (str(what), place, more[0] if more else None, at))
    for group in ("g", "h"):
        for record in list(offsets.all_deletions(group)):
            key = record.key
            assert isinstance(key, OffsetCommitKey)
            assert TopicPartition(key.topic, key.partition) in offsets.of(group) or offsets.is_pending(
                group, TopicPartition(key.topic, key.partition)
            )
            offsets.replay(key, None, 99)
    for producer in range(1, 4):
        offsets.replay_marker(producer, True)
    assert offsets.dump() == {"committed": {}, "pending": {}, "open": {}}
