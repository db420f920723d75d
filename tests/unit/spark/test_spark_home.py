"""The home that Spark is started with: the package's, without the zip that every Python process would compile."""

import os
import sys
from pathlib import Path

import pytest

from tidelog.spark.home import find_home, lean_home


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    for name in ("bin", "jars", "python/lib"):
        (tmp_path / "pyspark" / name).mkdir(parents=True)
    return tmp_path / "pyspark"


def test_it_has_all_but_the_zip_and_keeps_up(package: Path) -> None:
    home = find_home(package)
    assert home is not None
    assert {each.name: each.resolve() for each in home.iterdir()} == {
        "bin": package / "bin",
        "jars": package / "jars",
    }
    (package / "conf").mkdir()
    assert find_home(package) == home
    assert (home / "conf").samefile(package / "conf")


def test_another_installation_has_another(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for name in ("bin", "jars"):
        (other / name).mkdir(parents=True)
    assert find_home(package) != find_home(other)


def test_what_somebody_has_chosen_stays(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert find_home(package) is not None
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/sh")  # may have no PySpark but the zip's
    assert find_home(package) is None
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert find_home(package) is None
    with lean_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_a_client_alone_has_none(package: Path) -> None:
    (package / "jars").rmdir()
    assert find_home(package) is None


def test_it_is_set_for_a_while(package: Path) -> None:
    with lean_home() as home:
        assert os.environ["SPARK_HOME"] == str(home)
    assert "SPARK_HOME" not in os.environ
