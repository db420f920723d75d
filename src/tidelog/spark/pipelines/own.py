"""A user's own pipeline: a Python file with a function `pipeline`, given a session, that returns what is to run.

    def pipeline(spark, bootstrap, topic="orders"):
        rows = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)...
        return rows.writeStream.format("tidelog").option("topic", "revenue")

It returns a writer that is not started, or several as a dictionary by name, or nothing if all is done when it returns.
The name of a writer is where its checkpoint lies, unless it has one of its own. Further parameters are options.
"""

import ast
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.running import Queries, Query

FUNCTION: Final = "pipeline"
_TRUTH: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Failed(Exception):
    """The user's code raised: where, and what."""


def is_declarative(path: Path) -> bool:
    """Whether the file is one of Spark's declarative pipelines; if not, it has the function. Nothing of it is run."""
    if not path.is_file():
        raise InvalidOption(f"{path}: no such file")
    try:
        tree = ast.parse(path.read_text(), str(path))
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise InvalidOption(told(path, error)) from None
    if any(isinstance(each, ast.FunctionDef) and each.name == FUNCTION for each in tree.body):
        return False
    if any(_imports_pipelines(each) for each in ast.walk(tree)):
        return True
    raise InvalidOption(
        f"{path} has no function {FUNCTION}(spark), and is no declarative pipeline, which imports pyspark.pipelines"
    )


def _imports_pipelines(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return module.startswith("pyspark.pipelines") or (
            module == "pyspark" and any(each.name == "pipelines" for each in node.names)
        )
    return isinstance(node, ast.Import) and any(each.name.startswith("pyspark.pipelines") for each in node.names)


def load(path: Path) -> ModuleType:
    """The file as a module; what lies beside it can be imported, as if it were run by Python itself."""
    found = importlib.util.spec_from_file_location(f"tidelog_pipeline_{path.stem}", path)
    if found is None or found.loader is None:
        raise InvalidOption(f"{path} is no Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    sys.path.insert(0, str(path.parent.absolute()))
    loader = found.loader
    _calling(path, lambda: loader.exec_module(module))
    return module


def arguments(function: Callable[..., Any], given: Mapping[str, str], bootstrap: str) -> dict[str, Any]:
    """The options as the function's parameters have them: text, or the simple type of a parameter's annotation."""
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except NameError:
        parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise InvalidOption(f"{FUNCTION}() takes no session; write {FUNCTION}(spark)")
    options = {each.name: each for each in parameters[1:] if each.kind is not each.VAR_KEYWORD}
    any_name = len(options) < len(parameters) - 1
    unknown = [name for name in given if name not in options]
    if unknown and not any_name:
        known = ", ".join(name for name in options if name != "bootstrap") or "none"
        raise InvalidOption(f"{FUNCTION}() has no option {unknown[0]}; it has {known}")
    said = {"bootstrap": bootstrap, **given} if "bootstrap" in options else dict(given)
    missing = [name for name, each in options.items() if name not in said and each.default is each.empty]
    if missing:
        raise InvalidOption(f"{FUNCTION}() needs --option {missing[0]}=…")
    return {name: _converted(text, options.get(name)) for name, text in said.items()}


def queries(
    function: Callable[..., Any], path: Path, spark: SparkSession, name: str, given: Mapping[str, Any], *, once: bool
) -> Queries:
    """Calls the function. A writer without a checkpoint of its own gets one in the session's checkpoint directory."""
    returned = _calling(path, lambda: function(spark, **given))
    if returned is None:
        return Queries({})
    several = returned if isinstance(returned, Mapping) else {name: returned}
    return Queries({each: _named(query, each, once) for each, query in several.items()})


def _named(query: Any, name: str, once: bool) -> Query:
    if isinstance(query, DataStreamWriter):
        return query.queryName(name)
    if isinstance(query, StreamingQuery):
        if once:
            query.stop()
            raise InvalidOption(f"{name} is started already, so --once cannot end it: return it without start()")
        return query
    raise InvalidOption(
        f"{FUNCTION}() returned {_kind(query)}; return frame.writeStream… without start(), a dictionary of several by "
        "name, or nothing if all is done"
    )


def _kind(thing: Any) -> str:
    return f"a {type(thing).__name__}"


def _converted(text: str, parameter: inspect.Parameter | None) -> Any:
    kind = parameter.annotation if parameter is not None else str
    if kind is bool:
        if text.lower() not in _TRUTH:
            raise InvalidOption(f"--option {parameter and parameter.name}={text}: write true or false")
        return _TRUTH[text.lower()]
    if kind in (int, float, Path):
        try:
            return kind(text)
        except ValueError:
            raise InvalidOption(
                f"--option {parameter and parameter.name}={text} is not of type {kind.__name__}"
            ) from None
    return text


def _calling(path: Path, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InvalidOption:
        raise
    except Exception as failure:
        raise Failed(told(path, failure)) from failure


def told(path: Path, failure: BaseException) -> str:
    """What went wrong in the user's file, and on which line of it."""
    lines = str(failure).strip().splitlines() or [""]
    if isinstance(failure, SyntaxError):
        return f"{path.name}, line {failure.lineno}: {failure.msg}"
    mine = [each.lineno for each in traceback.extract_tb(failure.__traceback__) if Path(each.filename) == path]
    place = f"{path.name}, line {mine[-1]}" if mine else path.name
    return f"{place}: {type(failure).__name__}: {lines[0]}"
