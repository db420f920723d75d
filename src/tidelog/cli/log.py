"""`tidelog log …`: read log files without a broker."""

import typer

app = typer.Typer(help="Read and check log files on disk, without a broker.", no_args_is_help=True)
