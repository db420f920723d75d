"""Spark's declarative pipelines (`pyspark.pipelines`), run as `spark-pipelines run` does.

They are made for Spark Connect: a session of ours becomes a Connect server on a port of its own on loopback, and the
file is read by a client of it. One run brings every table, view and sink of the file up to what the topics hold.
"""

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.own import Failed, told
from tidelog.spark.pipelines.running import Tally
from tidelog.spark.progress import GroupProgress
from tidelog.spark.spark_session import session

_LOOK_S: Final = 0.5
_SERVER: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.sql.connect.serverStacktrace.enabled": "false",
}


def kept_in(home: Path) -> dict[str, str]:
    """Settings that keep tables from one run to the next: Spark's own catalog forgets them with the process."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "tables"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'catalog'};create=true",
        "spark.hadoop.hive.stats.autogather": "false",
        # Derby, which keeps the catalog, writes a log where it is started, unless it is told where.
        "spark.driver.extraJavaOptions": f'-Dderby.stream.error.file="{home / "catalog.log"}"',
    }


@contextmanager
def connected(name: str, master: str | None, conf: Mapping[str, str]) -> Iterator[Any]:
    """A client of a server in this process. Only who knows the token, which stays in the process, is let in."""
    try:
        import pyspark.pipelines.cli  # noqa: F401
    except ImportError as missing:
        raise InvalidOption(f"declarative pipelines need pip install 'pyspark[pipelines]': {missing}") from None
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = str(uuid.uuid4())
    server: Any = session(name, master, **(_SERVER | dict(conf)))
    server.sparkContext.setLogLevel(conf.get("spark.log.level", "OFF"))
    service = getattr(server._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    # From here on PySpark's functions make columns for the client, in this whole process.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    from pyspark.sql.connect.session import SparkSession

    # By this name: to any other address PySpark sends a token over TLS only.
    client = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
    try:
        yield client
    finally:
        client.stop()
        server.stop()


def graph_of(spark: Any, path: Path, settings: Mapping[str, str]) -> str:
    """What the file declares, by the name under which the server knows it."""
    import importlib.util

    from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
    from pyspark.pipelines.block_session_mutations import block_session_mutations
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

    for name, value in settings.items():
        spark.conf.set(name, value)
    graph: str = create_dataflow_graph(spark, default_catalog=None, default_database=None, sql_conf=dict(settings))
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise InvalidOption(f"{path} is no Python file")
    module = importlib.util.module_from_spec(found)
    module.__dict__["spark"] = spark
    sys.path.insert(0, str(path.parent.absolute()))
    with (
        graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)),
        add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None),
        block_session_mutations(),
    ):
        try:
            found.loader.exec_module(module)
        except Exception as failure:
            raise Failed(told(path, failure)) from failure
    return graph


def run_graph(
    spark: Any, graph: str, storage: Path, on_event: Callable[[str], None], stop: threading.Event | None = None
) -> bool:
    """One run, to its end: False if it was asked to stop before. What it fails of is raised. A graph runs once."""
    failures: list[BaseException] = []

    def listen() -> None:
        from pyspark.pipelines.spark_connect_pipeline import start_run

        try:
            events = start_run(
                spark, graph, full_refresh=[], full_refresh_all=False, refresh=[], dry=False, storage=storage.as_uri()
            )
            for each in events:
                if "pipeline_event_result" in each:
                    on_event(each["pipeline_event_result"].event.message)
        except BaseException as failure:
            failures.append(failure)

    # The answer comes when the run is over; meanwhile somebody must be able to say stop.
    listening = threading.Thread(target=listen, name="pipeline-events", daemon=True)
    listening.start()
    while listening.is_alive() and not (stop is not None and stop.is_set()):
        listening.join(_LOOK_S)
    if listening.is_alive():
        return False
    if failures:
        raise failures[0]
    return True


class Watching(GroupProgress):
    """Publishes positions to groups, as for other queries, and tells what each flow has done."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def onQueryProgress(self, event: Any) -> None:
        super().onQueryProgress(event)
        self._tally.count(event.progress.name or "", event.progress)


@contextmanager
def watched(spark: Any, tally: Tally) -> Iterator[None]:
    watching = Watching(tally)
    spark.streams.addListener(watching)
    try:
        yield
        time.sleep(_LOOK_S)  # reports come on a stream of their own, a little behind
    finally:
        spark.streams.removeListener(watching)
