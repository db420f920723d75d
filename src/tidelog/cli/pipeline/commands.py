"""`tidelog pipeline …`: ready pipelines on Spark, each one command, each goes on where it stopped."""

import typer

from tidelog.cli.pipeline.audit import audit
from tidelog.cli.pipeline.causal import causal
from tidelog.cli.pipeline.streams import aggregate, dedup, join
from tidelog.cli.pipeline.tables import archive, view
from tidelog.cli.pipeline.topics import replay, route
from tidelog.cli.pipeline.user import run_file
from tidelog.cli.pipeline.watch import list_, status, stop

app = typer.Typer(
    help="Pipelines on Spark: topics become tables, views and other topics, exactly once.", no_args_is_help=True
)

app.command()(archive)
app.command()(view)
app.command()(replay)
app.command()(route)
app.command()(dedup)
app.command()(aggregate)
app.command()(join)
app.command("run")(run_file)
app.command()(audit)
app.command()(causal)
app.command("list")(list_)
app.command()(status)
app.command()(stop)
