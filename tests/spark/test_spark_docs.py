"""The pages about the source, done as they say."""

import re
from pathlib import Path

import pytest
from tests.spark.kit import Topics

from tidelog.spark.options import KNOWN, REFUSED, WITHOUT_EFFECT

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "read-topics-with-spark.md"
REFERENCE = ROOT / "docs" / "reference" / "spark-source.md"


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(180)
def test_the_code_of_the_page_runs(spark, topics: Topics, tmp_path, capfd):
    topic = topics.make()
    topics.fill(topic, ['{"item": "tea", "price": 2.5}', "rotten"])
    code = "\n".join(re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    code = code.replace("localhost:9092", topics.bootstrap)
    code = re.sub(r'"orders"([)}])', rf'"{topic}"\1', code)
    for place in ("lake", "checkpoints"):
        code = code.replace(f'"{place}/', f'"{tmp_path}/{place}/')
    found: dict[str, object] = {}
    exec(code, found)
    for written in ("orders", "all-orders"):
        assert spark.read.parquet(str(tmp_path / "lake" / written)).count() == 2
    shown = capfd.readouterr().out
    assert "tea" in shown
    assert "JSONDecodeError" in shown


def test_every_option_is_in_the_reference():
    told = set(re.findall(r"`([A-Za-z.]+)`", REFERENCE.read_text()))
    names = {*KNOWN, *(name for name in WITHOUT_EFFECT if name not in ("path", "serialization.format"))}
    assert names <= told
    assert {f"kafka.{name}" for name in REFUSED} <= told
