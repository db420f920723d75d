"""Java's .properties format, which Kafka's server.properties is written in.

`#` and `!` begin comments; `=`, `:` or white space ends a name; a backslash at the end of a line continues it, and
escapes \\t \\n \\r \\f \\uXXXX or any character that would otherwise mean something.
"""

from collections.abc import Iterator
from typing import NamedTuple

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


class Property(NamedTuple):
    name: str
    value: str
    line: int


def parse_properties(text: str) -> list[Property]:
    """Every assignment in order, with the line it begins on. A later one for the same name is meant to win."""
    return [Property(*_split(line), number) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending, begun = "", 0
    # Not splitlines(): it also breaks at form feeds and Unicode separators, which are ordinary characters here.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = line.lstrip(_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        if (len(line) - len(line.rstrip("\\"))) % 2:  # an even number of backslashes is escaped backslashes
            pending += line[:-1]
            continue
        yield begun, pending + line
        pending, begun = "", 0
    if begun:
        yield begun, pending


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    name, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(name), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, characters = [], iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(characters, "")
        if escaped == "u":
            digits = "".join(next(characters, "") for _ in range(4))
            out.append(_code_point(digits))
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)


def _code_point(digits: str) -> str:
    try:
        return chr(int(digits, 16)) if len(digits) == 4 else f"u{digits}"
    except ValueError:
        return f"u{digits}"
