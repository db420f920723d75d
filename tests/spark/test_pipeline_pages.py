"""The pages about pipelines, done as they say. Pipelines run in this process, on the Spark that all tests share."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.test_howto import ROOT, agrees
from tests.spark.kit import Topics

from tidelog import cli

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]
HOW_TO = ROOT / "docs" / "how-to"


@pytest.fixture
def here(spark: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory to work in, with the broker known; what the command sets in the session is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", topics.bootstrap)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}")
    names = ("spark.sql.shuffle.partitions", "spark.sql.streaming.checkpointLocation")
    before = {name: spark.conf.get(name, None) for name in names}
    yield tmp_path
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)
    spark.sparkContext.setLogLevel("ERROR")


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    if command.startswith("tidelog ") and "consume" not in command:
        code = cli.run(shlex.split(command)[1:])
        out, errors = capsys.readouterr()
        assert code == 0, f"$ {command}\n{out}{errors}"
        return out.rstrip().splitlines()
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done.stdout.rstrip().splitlines()


@pytest.mark.parametrize("page", ["archive-and-move-topics", "dedup-aggregate-and-join"])
def test_the_page_is_true(page: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (HOW_TO / f"{page}.md").read_text()
    blocks = re.findall(r"^```shell-session\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    for part in [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]:
        command, *shown = part.splitlines()
        found = printed(command, capsys)
        assert agrees(shown, found), f"$ {command}\nprints {found}"


def test_what_is_wrong_is_said_in_a_line(here: Path, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    source = topics.make(1)
    topics.fill(source, ['{"id": 1, "name": "x"}'])
    aggregate = ["pipeline", "aggregate", source, "--to", "console", "--once", "--measure"]
    for arguments, says in (
        ([*aggregate, "sum(idd)"], "--measure idd: no such field; did you mean id?"),
        ([*aggregate, "sum(name)"], "name is of type string, no number"),
        ([*aggregate, "sum(id)", "--window", "soon"], "--window 'soon' is no length of time"),
        ([*aggregate, "sum(id)", "--event-time", "at"], "--event-time at: no such field"),
        (["pipeline", "dedup", source, "--on", "key", "--to", "no-such"], "topic no-such does not exist"),
        (["pipeline", "join", source, source, "--on", "id", "--to", "no-such"], "cannot be joined with itself"),
        (["pipeline", "run", "none.py"], "none.py: no such file"),
    ):
        assert cli.run(arguments) == 1
        told = capsys.readouterr().err
        assert says in told
        assert "Traceback" not in told
