"""The syntax of `SubscribedTopicRegex`: RE2's, read into a tree.

A topic name has only 65 different characters, so every class, escape and negation is a plain set of those, and case
folding is two of them. What RE2 does not have (lookaround, backreferences, possessive and doubled quantifiers) is
refused, and so are the few things it has that make no sense here (`\\b`, `\\p`).
"""

from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import Final, NamedTuple

PATTERN_LENGTH_MAX: Final = 4096
REPEAT_MAX: Final = 1000  # RE2's
DEPTH_MAX: Final = 100

ALPHABET: Final = frozenset(ascii_letters + digits + "._-")


class BadPattern(Exception):
    """The text says what is wrong and where."""


class Chars(NamedTuple):
    """One character of these. An empty set matches nothing: no topic has such a character."""

    chars: frozenset[str]


class Begin(NamedTuple):
    pass


class End(NamedTuple):
    pass


class Sequence(NamedTuple):
    parts: tuple["Node", ...]


class Choice(NamedTuple):
    branches: tuple["Node", ...]


class Repeat(NamedTuple):
    part: "Node"
    low: int
    high: int | None


Node = Chars | Begin | End | Sequence | Choice | Repeat

_CLASSES: Final = {
    "d": frozenset(digits),
    "w": frozenset(ascii_letters + digits + "_"),
    "s": frozenset[str](),
}
_POSIX: Final = {
    "alnum": frozenset(ascii_letters + digits),
    "alpha": frozenset(ascii_letters),
    "ascii": ALPHABET,
    "digit": frozenset(digits),
    "graph": ALPHABET,
    "lower": frozenset(ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "upper": frozenset(ascii_uppercase),
    "word": frozenset(ascii_letters + digits + "_"),
    "xdigit": frozenset(digits + "abcdefABCDEF"),
}


def parse(pattern: str) -> Node:
    """Raises BadPattern."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise BadPattern(f"longer than {PATTERN_LENGTH_MAX} characters")
    return _Parser(pattern).parse()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._ignore_case = False

    def parse(self) -> Node:
        node = self._choice(0)
        if self._at < len(self._text):
            raise self._bad("an unexpected )")
        return node

    # -- reading ------------------------------------------------------------------------------------------------------

    def _bad(self, why: str) -> BadPattern:
        return BadPattern(f"{why} at position {self._at}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise self._bad("the pattern ends too early")
        self._at += 1
        return char

    def _accept(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    # -- grammar ------------------------------------------------------------------------------------------------------

    def _choice(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise self._bad(f"more than {DEPTH_MAX} nested groups")
        outer_case = self._ignore_case
        branches = [self._sequence(depth)]
        while self._accept("|"):
            branches.append(self._sequence(depth))
        self._ignore_case = outer_case  # a flag holds to the end of its group
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while (char := self._peek()) and char not in "|)":
            atom = self._atom(depth)
            if atom is not None:
                parts.append(self._repeated(atom))
        return Sequence(tuple(parts))

    def _atom(self, depth: int) -> Node | None:
        """None for a flag that only changes how what follows is read."""
        char = self._next()
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return Chars(self._fold(self._class()))
            case ".":
                return Chars(ALPHABET)
            case "^":
                return Begin()
            case "$":
                return End()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self._at -= 1
                raise self._bad(f"nothing to repeat before {char}")
            case _:
                return Chars(self._fold(frozenset(char)))

    def _repeated(self, atom: Node) -> Node:
        bounds = self._quantifier()
        if bounds is None:
            return atom
        self._accept("?")  # lazy or not is the same if only the whole name counts
        if self._peek() in ("*", "+", "?") and self._peek():
            raise self._bad("a quantifier after a quantifier")
        return Repeat(atom, *bounds)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for text, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(text):
                return bounds
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None  # as in RE2, a brace that counts nothing is itself
        least, most = int(low[:5]), int(high[:5]) if high else None if comma else int(low[:5])
        if least > REPEAT_MAX or (most is not None and (most > REPEAT_MAX or most < least)):
            raise self._bad(f"a bad repeat count {{{low}{comma}{high}}}")
        self._at = end + 1
        return least, most

    def _group(self, depth: int) -> Node | None:
        outer_case = self._ignore_case
        if self._accept("?"):
            if self._accept("P<") or (
                self._peek() == "<" and self._text[self._at + 1 : self._at + 2] not in ("=", "!")
            ):
                self._name()
            elif self._peek() in ("=", "!", "<", ">") or not self._peek():
                raise self._bad("lookaround is not supported")
            elif not self._flags():
                return None
        node = self._choice(depth + 1)
        if not self._accept(")"):
            raise self._bad("a missing )")
        self._ignore_case = outer_case
        return node

    def _name(self) -> None:
        self._accept("<")
        end = self._text.find(">", self._at)
        if end < 0 or not self._text[self._at : end].isidentifier():
            raise self._bad("a bad group name")
        self._at = end + 1

    def _flags(self) -> bool:
        """True if a group follows `(?i:`, false if the flag was alone `(?i)`. Only `i` matters to a topic name."""
        on, ignore = True, self._ignore_case
        while (char := self._next()) not in ":)":
            if char == "-" and on:
                on = False
            elif char == "i":
                ignore = on
            elif char not in "msU":
                raise self._bad(f"an unknown flag {char!r}")
        self._ignore_case = ignore
        return char == ":"

    def _escape(self) -> Node:
        char = self._next()
        if char in "Az":
            return Begin() if char == "A" else End()
        return Chars(self._fold(self._escaped(char)))

    def _escaped(self, char: str) -> frozenset[str]:
        if char.lower() in _CLASSES:
            members = _CLASSES[char.lower()]
            return members if char.islower() else ALPHABET - members
        if char.isascii() and char.isalnum():
            raise self._bad(f"an unsupported escape \\{char}")
        return frozenset(char)

    def _class(self) -> frozenset[str]:
        negated = self._accept("^")
        members: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            members |= self._class_item()
        self._at += 1
        return ALPHABET - members if negated else frozenset(members)

    def _class_item(self) -> frozenset[str]:
        if self._accept("[:"):
            end = self._text.find(":]", self._at)
            name = self._text[self._at : end] if end >= 0 else ""
            if name.removeprefix("^") not in _POSIX:
                raise self._bad("an unknown class name")
            self._at = end + 2
            members = _POSIX[name.removeprefix("^")]
            return ALPHABET - members if name.startswith("^") else members
        low = self._class_char()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return low
        self._at += 1
        high = self._class_char()
        if len(low) != 1 or len(high) != 1 or min(low) > min(high):
            raise self._bad("a bad range")
        return self._fold(frozenset(char for char in ALPHABET if min(low) <= char <= min(high)))

    def _class_char(self) -> frozenset[str]:
        char = self._next()
        return self._escaped(self._next()) if char == "\\" else frozenset(char)

    def _fold(self, chars: frozenset[str]) -> frozenset[str]:
        if not self._ignore_case:
            return chars
        return chars | {char.lower() for char in chars} | {char.upper() for char in chars}
