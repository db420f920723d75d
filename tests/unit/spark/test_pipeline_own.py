"""A user's own file: what it is taken for and what its function is given. Nothing here needs Spark to run."""

from pathlib import Path
from typing import Any

import pytest

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.own import Failed, arguments, is_declarative, load, queries

PLAIN = "def pipeline(spark):\n    return None\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    ["from pyspark import pipelines as dp\n", "import pyspark.pipelines\n", "from pyspark.pipelines import table\n"],
)
def test_a_file_is_known_by_what_it_imports_or_defines(tmp_path: Path, text: str) -> None:
    assert is_declarative(written(tmp_path, text))
    assert not is_declarative(written(tmp_path, PLAIN))
    assert not is_declarative(written(tmp_path, text + PLAIN))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def pipeline(spark:\n", r"mine\.py, line 1: "),
        ("import pyspark\n", r"has no function pipeline\(spark\)"),
        ("pipeline = 7\n", r"has no function pipeline\(spark\)"),
    ],
)
def test_what_is_no_pipeline_is_said_before_anything_of_it_runs(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        is_declarative(written(tmp_path, text))
    with pytest.raises(InvalidOption, match="no such file"):
        is_declarative(tmp_path / "none.py")


def test_options_become_arguments() -> None:
    def pipeline(
        spark: Any, bootstrap: str, lake: Path, least: int = 3, fast: bool = False, share: float = 0.5
    ) -> None:
        pass

    given = {"lake": "a/b", "least": "7", "fast": "yes", "share": "0.25"}
    found = arguments(pipeline, given, "here:1")
    assert found == {"bootstrap": "here:1", "lake": Path("a/b"), "least": 7, "fast": True, "share": 0.25}
    assert arguments(pipeline, {"lake": "x", "bootstrap": "there:2"}, "here:1")["bootstrap"] == "there:2"
    for wrong, says in (
        ({}, "needs --option lake=…"),
        ({"lake": "x", "most": "1"}, "has no option most; it has lake, least, fast, share"),
        ({"lake": "x", "least": "few"}, "--option least=few is not of type int"),
        ({"lake": "x", "fast": "perhaps"}, "--option fast=perhaps: write true or false"),
    ):
        with pytest.raises(InvalidOption, match=says):
            arguments(pipeline, wrong, "here:1")


def test_a_function_may_take_any_option_but_must_take_a_session() -> None:
    assert arguments(lambda spark, **options: None, {"a": "1"}, "here:1") == {"a": "1"}
    with pytest.raises(InvalidOption, match=r"write pipeline\(spark\)"):
        arguments(lambda: None, {}, "here:1")


def test_what_the_function_returns(tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN)
    session: Any = object()
    assert queries(lambda spark: None, path, session, "mine", {}, once=True).main == {}
    for returned in (7, {"a": "b"}, [1]):
        with pytest.raises(InvalidOption, match=r"return frame.writeStream… without start"):
            queries(lambda spark, it=returned: it, path, session, "mine", {}, once=True)


def test_what_goes_wrong_in_the_file_is_said_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "import helper\n\ndef pipeline(spark):\n    return helper.half(0)\n")
    (tmp_path / "helper.py").write_text("def half(number):\n    return 1 / number\n")
    module = load(path)
    with pytest.raises(Failed, match=r"mine\.py, line 4: ZeroDivisionError: division by zero"):
        queries(module.pipeline, path, object(), "mine", {}, once=True)  # type: ignore[arg-type]
    with pytest.raises(Failed, match=r"mine\.py, line 2: KeyError: 'x'"):
        load(written(tmp_path, "\n{}['x']\n"))
