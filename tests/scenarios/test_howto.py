"""The how-to pages, done as they say: commands are run, shown output is found, tests in them pass."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidelog.cli.cluster.ports import HeldPort
from tidelog.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))


class Step(NamedTuple):
    command: str
    shown: list[str]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def steps(page: Path) -> Iterator[Step]:
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield Step(command, shown)


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Line by line; `...` stands for anything, and alone on a line for any number of lines."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(agrees(shown[1:], printed[skipped:]) for skipped in range(len(printed) + 1))
    if not printed:
        return False
    pattern = re.sub(r"([\[\]?*])", r"[\1]", shown[0]).replace("...", "*")
    return fnmatchcase(printed[0].rstrip(), pattern) and agrees(shown[1:], printed[1:])


@pytest.mark.parametrize("page", [page for page in PAGES if list(steps(page))], ids=lambda page: page.stem)
def test_commands_do_what_the_page_says(page: Path, tmp_path: Path) -> None:
    held = HeldPort()
    port = held.port
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TIDELOG_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "TIDELOG_BOOTSTRAP": f"127.0.0.1:{port}",
        "COLUMNS": "120",
    }
    servers: list[subprocess.Popen[str]] = []
    try:
        for command, shown in steps(page):
            if command.endswith("&"):
                arguments = [sys.executable, "-m", *command.removesuffix("&").split()]
                server = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
                servers.append(server)
                assert server.stdout is not None
                printed = [server.stdout.readline().replace(str(port), "9092").rstrip()]
            else:
                done = subprocess.run(
                    ["bash", "-c", command],
                    capture_output=True,
                    text=True,
                    cwd=tmp_path,
                    env=environment,
                    timeout=60,
                    check=False,
                )
                assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
                printed = done.stdout.rstrip().splitlines()
            assert agrees(shown, printed), f"$ {command}\nprints {printed}\nand not {shown}"
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=30)
        held.close()
    assert all(server.returncode == 0 for server in servers)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_tests_in_the_page_pass(page: Path, pytester: Any) -> None:
    sources = blocks(page, "python")
    pytester.makepyfile(**{f"test_page_{number}": source for number, source in enumerate(sources)})
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "--strict-markers")
    result.assert_outcomes(passed=sum(source.count("def test_") for source in sources))


def test_every_link_leads_somewhere() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_setting_named_exists() -> None:
    known = {*BROKER_SETTINGS, *TOPIC_SETTINGS, *GROUP_SETTINGS}
    rooms = "log|message|retention|flush|file|compression|node|cluster|max|min"
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for name in re.findall(rf"`((?:{rooms})\.[a-z.]+)", page.read_text()):
            assert name in known, f"{page.name} names {name}"
