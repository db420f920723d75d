"""Source code for one (message, version): what decode and encode functions share.

A table is turned into straight-line Python once and then runs without looking at the table again. Two things make it
fast: neighbouring fixed-size values, together with the length that follows them, are one `struct` call; and structs
inside structs are inlined.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any


class Source:
    """Lines of a function body under construction, and the objects it refers to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._depth = 1
        self._variables = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    def block(self, opening: str) -> "_Block":
        self.add(opening)
        return _Block(self)

    def variable(self, hint: str) -> str:
        self._variables += 1
        return f"{hint}_{self._variables}"

    def constant(self, value: Any, hint: str) -> str:
        """A global name for an object; the same object gets the same name."""
        name = self._names.get(id(value))
        if name is None:
            name = f"{hint}_{len(self._names)}"
            self._names[id(value)] = name
            self.globals[name] = value
        return name

    def struct_method(self, formats: str, method: str) -> str:
        name = f"{method}_{formats.replace('?', 'o')}"
        if name not in self.globals:
            self.globals[name] = getattr(Struct(">" + formats), method)
        return name

    def indent(self, by: int) -> None:
        self._depth += by

    def function(self, signature: str, title: str) -> Callable[..., Any]:
        text = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        scope = dict(self.globals)
        exec(compile(text, f"<tidelog.wire {title}>", "exec"), scope)
        function: Callable[..., Any] = scope[signature.partition("(")[0]]
        function.__doc__ = text
        return function


class _Block:
    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source.indent(1)

    def __exit__(self, *_: object) -> None:
        self._source.indent(-1)
