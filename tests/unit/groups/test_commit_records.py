"""The short way to encode a commit writes the very bytes the tables would."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidelog.groups.records import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_by_table,
    encode_record,
)
from tidelog.ids import NO_TOPIC_ID, TopicId


@given(
    st.text(max_size=20),
    st.text("abc.-", min_size=1, max_size=20),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from(["", "", "note"]),
    st.integers(0, 2**62),
    st.sampled_from([-1, -1, 5]),
    st.sampled_from([NO_TOPIC_ID, TopicId(UUID(int=77))]),
)
def test_equal_to_the_tables(group, topic, partition, offset, epoch, metadata, at, expires, topic_id):
    record = GroupRecord(
        OffsetCommitKey(group=group, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=offset,
            leader_epoch=epoch,
            metadata=metadata,
            commit_timestamp=at,
            expire_timestamp=expires,
            topic_id=topic_id,
        ),
    )
    assert encode_record(record) == encode_by_table(record)
    key, value = encode_record(record)
    if expires == -1:
        assert decode_record(key, value) == record
