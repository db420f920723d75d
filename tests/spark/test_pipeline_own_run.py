"""Pipelines of the user's own: the examples, as their first lines say."""

import json
import runpy
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.scenarios.test_howto import ROOT
from tests.spark.kit import Topics
from tests.spark.sink_kit import committed
from tests.spark.test_pipeline_pages import here

from tidelog import cli
from tidelog.spark.pipelines.registry import find

__all__ = ["here"]
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]
EXAMPLES = ROOT / "examples"
MINUTE = 60_000


def order(customer: str, cents: int, minute: int) -> str:
    return json.dumps({"customer": customer, "item": "tea", "cents": cents, "at": minute * MINUTE})


def test_a_function_runs_and_goes_on(here: Path, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = topics.make(1), topics.make(1)
    topics.fill(source, [order("ann", 5, 0), order("ann", 7, 0), order("bob", 1, 1), order("bob", 2, 9)])
    command = ["pipeline", "run", str(EXAMPLES / "spark_pipeline.py"), "--once", "--name", "spender"]
    command += ["--option", f"topic={source}", "--option", f"to={target}", "--option", f"lake={here / 'lake'}"]
    assert cli.run(command) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.startswith("spender: done, 8 rows in 2 batches, ")
    told = [json.loads(each) for each in committed(topics.bootstrap, target)]
    assert {(each["customer"], each["cents"], each["orders"]) for each in told} == {("ann", 12, 2), ("bob", 1, 1)}
    topics.fill(source, [order("ann", 1, 30)])
    assert cli.run([*command, "-o", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["query"] for line in lines if "query" in line} == {"spending", "orders-table"}
    assert (lines[-1]["rows"], lines[-1]["stopped"]) == (2, False)
    assert duckdb.sql(f"select count(*), sum(cents) from '{here}/lake/orders/*.parquet'").fetchall() == [(5, 16)]
    entry = find("spender")
    assert entry is not None
    assert (entry.kind, entry.state, entry.progress["lag"]) == ("run", "ended", 0)
    (here / "broken.py").write_text("def pipeline(spark):\n    return spark.range(3)\n")
    assert cli.run(["pipeline", "run", "broken.py", "--once"]) == 1
    assert "pipeline() returned a DataFrame; return frame.writeStream" in capsys.readouterr().err


def test_a_look_at_a_topic(
    here: Path, spark: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.make(2)
    topics.fill(topic, [order("ann", 5, 0), order("bob", 7, 0), "rotten"])
    monkeypatch.setenv("ORDERS_TOPIC", topic)
    runpy.run_path(str(EXAMPLES / "spark_notebook.py"))
    assert "3 orders, 1 of them unreadable" in capfd.readouterr().out
