"""A declared pipeline, in a process of its own: PySpark is a client of Connect in it, for good."""

import json
import os
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import duckdb
import pytest
from tests.spark.kit import OWN_PROCESSES, QUICK_JAVA, Topics
from tests.spark.sink_kit import committed
from tests.spark.test_pipeline_own_run import EXAMPLES, order

pytestmark = [pytest.mark.xdist_group(OWN_PROCESSES), pytest.mark.timeout(400)]


def test_a_declared_pipeline_runs_again_and_again_until_it_is_stopped(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(1), topics.make(1)
    table = '\n\n@dp.table\ndef all_orders() -> DataFrame:\n    return spark.readStream.table("orders")\n'
    mine = tmp_path / "shop.py"
    mine.write_text((EXAMPLES / "spark_declarative.py").read_text() + table)
    topics.fill(source, [order("ann", 5, 0), order("bob", 7, 0)])
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(mine), "-b", topics.bootstrap, "-o", "json"]
    command += ["--every", "1 second", "--checkpoint", str(tmp_path / "home")]
    command += ["--option", f"topic={source}", "--option", f"to={target}", "--option", "least=6"]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": QUICK_JAVA, "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as running:
        assert running.stdout is not None
        lines = map(json.loads, running.stdout)
        first = list(takewhile(lambda line: line.get("event") != "Run is COMPLETED.", lines))
        flows = {line["query"] for line in first if "query" in line}
        assert flows == {"to_big_orders", "spark_catalog.default.all_orders"}
        topics.fill(source, [order("ann", 9, 1)])
        again = next(line for line in lines if line.get("batch_rows") == 1 and line["query"] == "to_big_orders")
        assert again["lag"] == 0
        running.send_signal(signal.SIGTERM)
        *_, ended = lines
        assert (ended["pipeline"], ended["stopped"]) == ("shop", True)
    assert running.returncode == 0
    assert {json.loads(each)["cents"] for each in committed(topics.bootstrap, target)} == {7, 9}
    assert len(committed(topics.bootstrap, target)) == 2
    files = tmp_path / "home" / "tables" / "all_orders" / "*.parquet"
    assert duckdb.sql(f"select max(cents) from '{files}'").fetchall()[0][0] >= 7
