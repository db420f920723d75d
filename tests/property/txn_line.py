"""A client's connection in a network that delays and loses."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sim_disk import PowerLost
from txn_client import Client
from txn_machine import Machine

from tidelog.wire.frames import decode_response_header, encode_request
from tidelog.wire.schema import Message, decode, encode, spec_of

if TYPE_CHECKING:
    from txn_world_whole import World


class Line:
    """A client's connection. What was sent over it may arrive long after its client has turned to another."""

    def __init__(self, world: "World", machine: Machine, client: Client) -> None:
        self.world = world
        self.machine = machine
        self.client = client
        self.usable = True
        self.delay = 0.0
        self._arrives = world.now
        self._expected: list[tuple[Any, int]] = []
        self._server = machine.accept(self._heard)

    def send(self, request: Message, version: int) -> None:
        world, dice = self.world, self.world.dice
        spec = spec_of(type(request))
        self._expected.append((spec, version))
        frame = encode_request(spec.key, version, 7, "sim", encode(request, version))[4:]
        if self.delay == 0:
            self.delay = world.delay_of(request)
        self._arrives = max(self._arrives, world.now + dice.choice((0, 0.0002, 0.002)) + self.delay)
        world.at(self._arrives, lambda: self._deliver(bytes(frame)))

    def _deliver(self, frame: bytes) -> None:
        if self.machine is self.world.machine and not self._server.closed:
            with suppress(PowerLost):
                self._server.receive(frame)

    def _heard(self, frame: bytes) -> None:
        spec, version = self._expected.pop(0)
        if not self.usable:
            return
        if self.world.dice.random() < self.world.trouble / 2:
            return  # on its way back it was lost, and the connection with it
        data = memoryview(frame)[4:]
        _, body = decode_response_header(spec.key, version, data)
        answer = decode(spec.response, version, bytes(data), body)
        ticket = self.client.ticket  # type: ignore[attr-defined]
        self.world.after(0.0002, lambda: self.world.resume(self.client, ticket, answer))

    def abandon(self) -> None:
        self.usable = False
        if self.delay == 0 and self.world.dice.random() < 0.5:
            self._server.closed = True
