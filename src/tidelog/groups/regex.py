"""Which topics a pattern subscribes to. Time and memory are bounded whatever the pattern: it comes from any client.

Python's own `re` backtracks: `(a+)+b` on one name of forty a's takes longer than anybody's session. Here all ways
through the pattern are walked at once, character by character, as RE2 does, and each step that was computed is kept for
the next name. A pattern matches a topic only as a whole.
"""

from collections.abc import Iterable
from typing import Final

from tidelog.groups.consumer_errors import InvalidRegularExpression
from tidelog.groups.regex_parse import BadPattern, Begin, Chars, Choice, End, Node, Repeat, Sequence, parse

STATES_MAX: Final = 10_000
WORK_MAX: Final = 1_000_000  # steps from state to state in one `select`: about half a second
NODE_WORK: Final = 10  # as many steps as building a node takes

States = frozenset[int]


class _TooMuch(Exception):
    pass


class TopicPattern:
    """Raises InvalidRegularExpression if the pattern cannot be read or would be too large."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        try:
            self._program = _Program(parse(pattern))
        except BadPattern as error:
            raise InvalidRegularExpression(pattern, str(error)) from None
        except _TooMuch:
            raise InvalidRegularExpression(pattern, "it is too large") from None

    def select(self, names: Iterable[str]) -> frozenset[str]:
        """Those the pattern matches from beginning to end."""
        try:
            return frozenset(name for name in names if self._program.matches(name))
        except _TooMuch:
            raise InvalidRegularExpression(self.pattern, "it takes too long to match") from None


class _Program:
    """A nondeterministic automaton, made deterministic as far as the names that were seen need it.

    A state either consumes one of `_chars` and goes on to the next, or goes on to others by itself (`_jumps`).
    """

    def __init__(self, tree: Node) -> None:
        self._chars: dict[int, frozenset[str]] = {}
        self._jumps: dict[int, list[int]] = {}
        self._anchors: dict[int, type[Begin] | type[End]] = {}
        self._size = 0
        self._work = 0
        self._sets: list[States] = []
        self._numbers: dict[States, int] = {}
        self._steps: list[dict[str, int]] = []
        self._accepts: list[bool] = []
        start = self._new()
        self._end = self._add(tree, start)
        self._start = self._number(self._closure([start], at_begin=True))

    def matches(self, name: str) -> bool:
        steps, number = self._steps, self._start
        for char in name:
            following = steps[number].get(char)
            if following is None:
                following = steps[number][char] = self._number(self._step(self._sets[number], char))
            number = following
        return self._accepts[number]

    def _number(self, states: States) -> int:
        """Sets of states are compared once; from then on they are numbers."""
        if states not in self._numbers:
            self._numbers[states] = len(self._sets)
            self._sets.append(states)
            self._steps.append({})
            self._accepts.append(self._end in self._closure(states, at_end=True))
        return self._numbers[states]

    def _step(self, states: States, char: str) -> States:
        self._spend(len(states))
        return self._closure([state + 1 for state in states if char in self._chars.get(state, ())])

    def _closure(self, states: Iterable[int], *, at_begin: bool = False, at_end: bool = False) -> States:
        seen = set(states)
        waiting = list(seen)
        while waiting:
            state = waiting.pop()
            anchor = self._anchors.get(state)
            if (anchor is Begin and not at_begin) or (anchor is End and not at_end):
                continue
            for target in self._jumps.get(state, ()):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        self._spend(len(seen))
        return frozenset(seen)

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > WORK_MAX:
            raise _TooMuch

    # -- building -----------------------------------------------------------------------------------------------------

    def _new(self) -> int:
        if self._size >= STATES_MAX:
            raise _TooMuch
        self._size += 1
        return self._size - 1

    def _jump(self, source: int, target: int) -> None:
        self._jumps.setdefault(source, []).append(target)

    def _add(self, node: Node, start: int) -> int:
        """Build what `node` matches behind `start`; the state it ends in."""
        self._spend(NODE_WORK)  # repeating nothing adds no states, and takes its time all the same
        match node:
            case Chars(chars):
                consuming = self._new()  # its successor must be the state numbered next
                self._jump(start, consuming)
                self._chars[consuming] = chars
                return self._new()
            case Begin() | End():
                anchor, end = self._new(), self._new()
                self._jump(start, anchor)
                self._anchors[anchor] = type(node)
                self._jump(anchor, end)
                return end
            case Sequence(parts):
                for part in parts:
                    start = self._add(part, start)
                return start
            case Choice(branches):
                ends = [self._add(branch, start) for branch in branches]
                end = self._new()
                for one in ends:
                    self._jump(one, end)
                return end
            case Repeat(part, low, high):
                return self._add_repeat(part, low, high, start)

    def _add_repeat(self, part: Node, low: int, high: int | None, start: int) -> int:
        for _ in range(low):
            start = self._add(part, start)
        if high is None:
            loop, end = self._new(), self._new()
            self._jump(start, loop)
            self._jump(self._add(part, loop), loop)
            self._jump(loop, end)
            return end
        exits = [start]
        for _ in range(high - low):
            start = self._add(part, start)
            exits.append(start)
        end = self._new()
        for one in exits:
            self._jump(one, end)
        return end
