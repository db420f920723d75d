"""`read_topics`: what the source gives, copied once less."""

import pytest
from tests.spark.kit import Topics

from tidelog.spark import read_topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def filled(topics: Topics) -> str:
    topic = topics.make(2)
    for p in range(2):
        topics.fill(topic, [f"{p}-{i}" for i in range(300)], p, key=b"k", headers={"source": b"test"})
    return topic


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_it_is_what_the_source_gives(spark, topics, filled, zone):
    options = topics.options(filled, includeHeaders=True, minPartitions=5)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame, source = read_topics(spark, **options), spark.read.format("tidelog").options(**options).load()
        assert frame.schema == source.schema
        assert frame.rdd.getNumPartitions() == source.rdd.getNumPartitions() >= 5
        rows = [sorted(each.collect(), key=lambda row: (row.partition, row.offset)) for each in (frame, source)]
        assert rows[0] == rows[1]
        assert len(rows[0]) == 600
        shown = [each.selectExpr("max(date_format(timestamp, 'HH:mm:ss.SSS'))").first() for each in (frame, source)]
        assert shown[0] == shown[1]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_no_row_is_copied_by_a_projection(spark, topics, filled):
    def plan(frame):
        return frame._jdf.queryExecution().executedPlan().toString()

    assert "Project" not in plan(read_topics(spark, **topics.options(filled)))
    # As long as this is so, `read_topics` has a reason to exist.
    assert "Project" in plan(spark.read.format("tidelog").options(**topics.options(filled)).load())


def test_offsets_are_settled_when_it_is_called(spark, topics):
    topic = topics.make()
    topics.fill(topic, ["a", "b"])
    frame = read_topics(spark, **topics.options(topic))
    topics.fill(topic, ["c"])
    assert (frame.count(), frame.count(), read_topics(spark, **topics.options(topic)).count()) == (2, 2, 3)


def test_fewer_columns_and_typed_values(spark, topics):
    topic = topics.make()
    topics.fill(topic, ['{"id": 1}', "rotten"])
    assert [tuple(row) for row in read_topics(spark, "offset bigint", **topics.options(topic)).collect()] == [
        (0,),
        (1,),
    ]
    typed = topics.options(topic, **{"value.format": "json", "value.schema": "id BIGINT"})
    rows = read_topics(spark, **typed).selectExpr("value.id", "_error IS NULL", "_raw").collect()
    assert [(row[0], row[1], row[2] and bytes(row[2])) for row in rows] == [(1, True, None), (None, False, b"rotten")]


def test_nothing_to_read(spark, topics):
    assert read_topics(spark, **topics.options(topics.make())).count() == 0


def test_wrong_options_are_told_at_once(spark, topics, filled):
    with pytest.raises(Exception, match="did you mean subscribePattern"):
        read_topics(spark, **topics.options(filled, subscribePatern="x"))
