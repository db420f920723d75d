"""Answers to several clients leave together, when all who asked in this turn of the loop have been served.

A send wakes its client, and a client that was waiting for it takes a core: often this one. Sent one by one between the
requests of others, every answer costs such a change. Sent in a row, most of them find their client awake.

Where clients come one at a time there is nothing to wait for, and an answer leaves at once.
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
        self._senders = 0
        self._crowded = False
        """Whether several had something to send in the last turn that anybody had: then several will in this."""

    def add(self, sender: Sender) -> None:
        self._senders += 1
        if self._senders == 1:
            self._loop.call_soon(self._end_turn)  # behind every client that is readable in this turn
            if not self._crowded:
                sender.send_now()
                return
        self._due.append(sender)
        if len(self._due) == SENDERS_MAX:
            self._send()

    def _end_turn(self) -> None:
        self._crowded = self._senders > 1
        self._senders = 0
        self._send()

    def _send(self) -> None:
        due, self._due = self._due, []
        for sender in due:
            sender.send_now()
