"""Pages done as they say. Pipelines run in this process, on the session that is there, instead of one of their own."""

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.scenarios.test_howto import ROOT, agrees

from tidelog.cli import run

_OR_CODE = ' || echo "exit code $?"'


def blocks(name: str, language: str) -> list[str]:
    text = (ROOT / "docs" / "how-to" / name).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def follow(name: str, environment: Mapping[str, str], directory: Path, capsys: Any) -> None:
    for block in blocks(name, "shell-session"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip().splitlines()
            if command.startswith("tidelog pipeline "):
                printed, code = _here(command.removesuffix(_OR_CODE), capsys)
                if command.endswith(_OR_CODE) and code:
                    printed, code = f"{printed}exit code {code}\n", 0
            else:
                done = subprocess.run(
                    ["bash", "-c", command], capture_output=True, text=True, cwd=directory, env=environment, check=False
                )
                printed, code = done.stdout + done.stderr, done.returncode
            assert code == 0, f"$ {command}\n{printed}"
            assert agrees(shown, printed.rstrip().splitlines()), f"$ {command}\nprints {printed}"


def _here(command: str, capsys: Any) -> tuple[str, int]:
    capsys.readouterr()
    code = run(shlex.split(command)[1:])
    told = capsys.readouterr()
    return told.out + (told.err if code else ""), code
