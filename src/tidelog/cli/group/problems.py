"""Words for what goes wrong with groups."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.cli.problems import Problem
from tidelog.observe.group import GroupIdNotFound


@contextmanager
def existing(group: str) -> Iterator[None]:
    """A group that is not there is the typist's to correct."""
    try:
        yield
    except GroupIdNotFound:
        raise Problem(f"there is no group {group}", "`tidelog group list` shows the groups there are") from None
