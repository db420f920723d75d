"""Tools these tests need are installed when they are missing and we may; mounts are always taken down again."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.tools import need

Mount = Callable[..., Path]


@pytest.fixture(scope="session")
def strace() -> str:
    return need("strace", "strace")


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
