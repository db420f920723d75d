"""Answers to several clients that leave together, when all who asked in this turn of the loop have been served.

A send wakes its client, and a client that was waiting for it takes a core: often this one. Sent one by one between the
requests of others, every answer costs such a change. Sent in a row, most of them find their client awake.
"""

from asyncio import AbstractEventLoop
from typing import Final, Protocol

SENDERS_MAX: Final = 64
"""Connections waiting to send before the first of them is kept waiting no longer."""


class Sender(Protocol):
    def send_now(self) -> None:
        """All that is queued and not on its way. It may be nothing, and must not raise."""
        ...


class Outbox:
    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[Sender] = []

    def add(self, sender: Sender) -> None:
        due = self._due
        due.append(sender)
        if len(due) == 1:
            self._loop.call_soon(self._send)  # behind every client that is readable in this turn
        elif len(due) >= SENDERS_MAX:
            self._send()

    def _send(self) -> None:
        due, self._due = self._due, []
        for sender in due:
            sender.send_now()
