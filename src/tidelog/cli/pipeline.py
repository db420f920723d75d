"""`tidelog pipeline …`: ready pipelines on Spark, each one command, each goes on where it stopped."""

import typer

from tidelog.cli.pipeline_audit import audit
from tidelog.cli.pipeline_tables import archive, view
from tidelog.cli.pipeline_topics import replay, route
from tidelog.cli.pipeline_watch import list_, status, stop

app = typer.Typer(
    help="Pipelines on Spark: archive, view, replay and route topics, exactly once.", no_args_is_help=True
)

app.command()(archive)
app.command()(view)
app.command()(replay)
app.command()(route)
app.command()(audit)
app.command("list")(list_)
app.command()(status)
app.command()(stop)
