"""`tidelog demo`: a shop on one topic, three brokers, four services, a Spark pipeline, and all numbers checked."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.cluster.commands import HERE
from tidelog.cli.output import count
from tidelog.cli.problems import Problem

if TYPE_CHECKING:
    from tidelog.demo.performance import Account, Performance


def demo(
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.1, help="End by itself after this long.")] = None,
    port: Annotated[
        int, typer.Option("--port", "-p", min=1, max=65_000, help="Of a broker to use, or of the first to start.")
    ] = 9092,
    brokers: Annotated[
        int, typer.Option("--brokers", "-n", min=1, max=9, help="How many to start if none is there; all vote.")
    ] = 3,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", "-d", metavar="DIR", help="Where brokers started here keep their logs.")
    ] = HERE,
    rate: Annotated[int, typer.Option("--rate", "-r", min=1, max=100_000, help="Events a second.")] = 1000,
    spark: Annotated[
        bool | None,
        typer.Option("--spark/--no-spark", help="With the Spark pipeline; unless told, if it is installed."),
    ] = None,
    lake: Annotated[
        Path, typer.Option("--lake", metavar="DIR", help="Where the pipeline archives events as Parquet.")
    ] = Path("lake"),
) -> None:
    """See it work: three brokers, a shop's events, services that act on them, Spark reports. Ctrl-C ends it.

    Meanwhile, in another terminal: `tidelog cluster break 2 --how kill`. Nothing is lost, and the numbers still add up.
    """
    from tidelog.cli.demo_broker import brokers_at
    from tidelog.demo.performance import TOPIC, Performance
    from tidelog.demo.screen import LineView, TerminalView
    from tidelog.demo.spark_child import is_installed

    if spark and not is_installed():
        raise Problem("PySpark is not installed", "pip install 'tidelog[spark]', or run with --no-spark")
    with_spark = is_installed() if spark is None else spark
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a broker started here ends with the demo
    with brokers_at(port, data_dir, brokers) as (bootstrap, started):
        says = f"started {count(started, 'broker')}" if started else "using the broker"
        print(f"{says} at {bootstrap}; events go to topic {TOPIC}")
        if started > 1:
            print(f"try, in another terminal: tidelog cluster break 2 --how kill{_directory(data_dir)}")
        performance = Performance(bootstrap, rate=rate, lake=lake, with_spark=with_spark)
        with TerminalView() if sys.stdout.isatty() else LineView() as view:
            found = performance.play(seconds, view)
    _report(found)
    _what_next(performance, port, data_dir, started, with_spark)
    wrong = [each for each in found if not each.holds]
    if wrong:
        raise Problem(
            f"{count(len(wrong), 'number')} of {len(found)} did not add up, such as {wrong[0].what}: "
            f"{wrong[0].found:,} instead of {wrong[0].expected:,}",
            f"`tidelog log verify {data_dir}/node-1/data` checks what is on disk"
            + (f"; Spark's own words are in {performance.lake}/spark.log" if with_spark else ""),
        )


def _directory(data_dir: Path) -> str:
    return "" if data_dir == HERE else f" -d {data_dir}"


def _report(found: "list[Account]") -> None:
    for each in found:
        says = "" if each.holds else f"   should be {each.expected:,}"
        print(f"{'ok ' if each.holds else 'NO '} {each.found:>14,}  {each.what}{says}")


def _what_next(performance: "Performance", port: int, data_dir: Path, started: int, with_spark: bool) -> None:
    from tidelog.demo.performance import TOPIC

    broker = "" if port == 9092 else f" -b localhost:{port}"
    print("next:")
    if started:
        ports = "" if port == 9092 else f" --port {port}"
        nodes = "" if started == 3 else f" --nodes {started}"
        print(f"  tidelog cluster start{nodes}{ports}{_directory(data_dir)}      # everything is still there")
    print(f"  tidelog topic describe {TOPIC}{broker}")
    print(f"  tidelog group diagnose billing{broker}")
    print(f"  tidelog consume {TOPIC} --offset -1 -e -o json{broker}")
    if with_spark:
        print(f"  python -c \"import pandas; print(pandas.read_parquet('{performance.lake}/orders'))\"")
