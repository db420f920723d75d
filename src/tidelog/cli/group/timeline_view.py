"""A group's past as lines of text: a lane for each member over time, and above them generations and standing still."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from tidelog.cli.render import shown
from tidelog.groups.history import EventKind, GroupEvent

LANES_MAX: Final = 32
_LABEL_MAX: Final = 24
_ARRIVALS: Final = {EventKind.JOINED: "●", EventKind.REPLACED: "◆"}
_DEPARTURES: Final = {EventKind.LEFT: "○", EventKind.EVICTED: "✗"}
LEGEND: Final = "● joined  ◆ static member came back  ○ left  ✗ evicted  ▒ stood still"


class Stay(msgspec.Struct, kw_only=True):
    """One member from its coming to its going."""

    member_id: str
    client_id: str
    from_ms: int
    to_ms: int | None = None
    arrival: str = "━"  # came before the history begins
    departure: str = "━"


def stays(events: Sequence[GroupEvent], members: Iterable[tuple[str, str]], began_ms: int) -> list[Stay]:
    """`members`, ids and client ids, are those of now: what is not among them has gone, also if nobody noted when."""
    here = dict(members)
    open_stays: dict[str, Stay] = {}
    found: list[Stay] = []
    for event in events:
        if event.kind in _ARRIVALS:
            if event.kind is EventKind.REPLACED:
                _end_predecessor(open_stays, event, here)
            if event.member_id in open_stays:
                continue
            stay = Stay(member_id=event.member_id, client_id=event.client_id, from_ms=event.at_ms)
            stay.arrival = _ARRIVALS[event.kind]
            open_stays[event.member_id] = stay
            found.append(stay)
        elif event.kind in _DEPARTURES:
            left = open_stays.pop(event.member_id, None)
            if left is None:  # its coming is forgotten already
                left = Stay(member_id=event.member_id, client_id=event.client_id, from_ms=began_ms)
                found.append(left)
            left.to_ms, left.departure = event.at_ms, _DEPARTURES[event.kind]
        elif event.kind is EventKind.EMPTY:
            for member_id in [each for each in open_stays if each not in here]:
                open_stays.pop(member_id).to_ms = event.at_ms
    for member_id, client_id in here.items():
        if member_id not in open_stays:
            found.append(Stay(member_id=member_id, client_id=client_id, from_ms=began_ms))
    return sorted(found, key=lambda stay: stay.from_ms)


def _end_predecessor(open_stays: dict[str, Stay], event: GroupEvent, here: dict[str, str]) -> None:
    """The event of a static member's return does not say under which id it was known before."""
    for member_id, stay in open_stays.items():
        if stay.client_id == event.client_id and member_id not in here and member_id != event.member_id:
            stay.to_ms = event.at_ms
            del open_stays[member_id]
            return


def lanes(found: Iterable[Stay]) -> list[list[Stay]]:
    """Stays of one client id that do not overlap share a lane: a process that restarts is one line."""
    packed: list[list[Stay]] = []
    for stay in found:
        for lane in packed:
            last = lane[-1]
            if last.client_id == stay.client_id and last.to_ms is not None and last.to_ms <= stay.from_ms:
                lane.append(stay)
                break
        else:
            packed.append([stay])
    return packed


def draw(
    events: Sequence[GroupEvent], members: Iterable[tuple[str, str]], *, from_ms: int, to_ms: int, width: int
) -> Iterator[str]:
    """Lines no wider than `width`. Time runs from left to right and is linear."""
    packed = lanes(stays(events, members, from_ms))
    names = [_label(lane[0]) for lane in packed]
    label = max([len("generation"), *map(len, names)]) + 2
    scale = _Scale(from_ms, to_ms, max(width - label, 20))
    yield " " * label + _axis(scale)
    yield "generation".ljust(label) + _generations(events, scale)
    yield "stood still".ljust(label)[:label] + _stops(events, scale)
    hidden = len(packed) - LANES_MAX
    for name, lane in list(zip(names, packed, strict=True))[max(hidden, 0) :]:
        yield name.ljust(label) + _lane(lane, scale)
    if hidden > 0:
        yield f"({hidden} earlier members are not drawn)"


class _Scale(msgspec.Struct, frozen=True):
    from_ms: int
    to_ms: int
    width: int

    def column(self, at_ms: int) -> int:
        span = max(self.to_ms - self.from_ms, 1)
        return min(max((at_ms - self.from_ms) * (self.width - 1) // span, 0), self.width - 1)


def _axis(scale: _Scale) -> str:
    first, last = clock(scale.from_ms), clock(scale.to_ms)
    middle = clock((scale.from_ms + scale.to_ms) // 2)
    if scale.width < 30:
        return first
    gap = scale.width - len(first) - len(middle) - len(last)
    return first + " " * (gap // 2) + middle + " " * (gap - gap // 2) + last


def _generations(events: Sequence[GroupEvent], scale: _Scale) -> str:
    cells = [" "] * scale.width
    free = 0
    for event in events:
        if event.kind is not EventKind.GENERATION:
            continue
        at = scale.column(event.at_ms)
        mark = f"│{event.generation}"
        if at >= free and at + len(mark) <= scale.width:
            cells[at : at + len(mark)] = mark
            free = at + len(mark) + 1
        elif cells[at] == " ":
            cells[at] = "│"
    return "".join(cells).rstrip()


def _stops(events: Sequence[GroupEvent], scale: _Scale) -> str:
    cells = [" "] * scale.width
    for event in events:
        if event.kind is EventKind.STABLE and event.stopped_ms > 0:
            first, last = scale.column(event.at_ms - event.stopped_ms), scale.column(event.at_ms)
            cells[first : last + 1] = "▒" * (last + 1 - first)
    return "".join(cells).rstrip()


def _lane(lane: Iterable[Stay], scale: _Scale) -> str:
    cells = [" "] * scale.width
    for stay in lane:
        first = scale.column(stay.from_ms)
        last = scale.width - 1 if stay.to_ms is None else scale.column(stay.to_ms)
        cells[first : last + 1] = "━" * (last + 1 - first)
        cells[last] = stay.departure
        # A stay shorter than a column shows how it ended: that is the news.
        if first != last or stay.departure == "━":
            cells[first] = stay.arrival
    return "".join(cells).rstrip()


def _label(stay: Stay) -> str:
    name = shown(stay.client_id or stay.member_id)
    return name if len(name) <= _LABEL_MAX else name[: _LABEL_MAX - 1] + "…"


def clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%H:%M:%S")


def why(event: GroupEvent) -> str:
    """The rest of an event, in words."""
    words = [shown(event.reason)] if event.reason else []
    if event.stopped_ms >= 0:
        words.append(f"stood still for {event.stopped_ms:,} ms")
    if event.partitions_moved >= 0:
        words.append(f"{event.partitions_moved} partition{'s' if event.partitions_moved != 1 else ''} moved")
    if event.members >= 0 and event.kind in (EventKind.GENERATION, EventKind.STABLE):
        words.append(f"{event.members} member{'s' if event.members != 1 else ''}")
    return ", ".join(words)
