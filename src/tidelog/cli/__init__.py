"""`tidelog …`: an ordinary client of the protocol, on any Kafka. Only `serve`, `log` and `cluster start|break|heal` are
about brokers of ours.

Starting up is kept cheap: this package imports nothing heavy, and each command imports what it needs when it runs.
"""

import os
import sys
from collections.abc import Sequence


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """One command line to one exit code: 0 done, 1 refused or failed, 2 not understood, 130 interrupted."""
    if sys.stdin is None:  # closed by whoever started us, as cron and some supervisors do: the same as nothing to read
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    from tidelog.cli.app import app
    from tidelog.cli.problems import explain

    try:
        app(args=list(arguments), prog_name="tidelog")
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer makes an exit with 1 of it
            return _closed_pipe()
        return _flushed(ended.code if isinstance(ended.code, int) else 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _closed_pipe()
    except Exception as error:
        if os.environ.get("TIDELOG_DEBUG"):
            raise
        for line in explain(error):
            print(line, file=sys.stderr)
        return 1
    return _flushed(0)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _closed_pipe()
    return code


def _closed_pipe() -> int:
    """The reader left (`tidelog consume … | head`): that is how it says it has enough, not a failure."""
    # The interpreter flushes stdout once more as it ends; give it somewhere to flush to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0
