"""Tools these tests need are installed when they are missing and we may; mounts are always taken down again."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Mount = Callable[..., Path]


def _need(program: str, package: str) -> str:
    if shutil.which(program) is None and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "-y", "-qq", package], check=True, capture_output=True, timeout=300)
    found = shutil.which(program)
    assert found, f"{program} is missing: apt-get install {package}"
    return found


@pytest.fixture(scope="session")
def strace() -> str:
    return _need("strace", "strace")


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """`mount("tmpfs", "size=8m")` or `mount(image)`: a fresh mount point, unmounted when the test is over."""
    points: list[Path] = []

    def make(*arguments: str) -> Path:
        point = tmp_path / f"mount-{len(points)}"
        point.mkdir()
        subprocess.run(["mount", *arguments, str(point)], check=True)
        points.append(point)
        return point

    yield make
    for point in points:
        subprocess.run(["umount", "-l", str(point)], check=False, capture_output=True)
