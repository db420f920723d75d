"""How the demo looks: a live screen in a terminal, a line a second anywhere else."""

import time
from types import TracebackType
from typing import Any, Final, Protocol, Self

_BAR_WIDTH: Final = 40
_REDRAW_SECONDS: Final = 0.25


class Facts(Protocol):
    """What a view shows; see `demo.Totals`."""

    produced: int
    consumed: int

    @property
    def counts(self) -> list[int]: ...
    @property
    def skew(self) -> float | None: ...
    @property
    def last(self) -> Any: ...


class Rates:
    """Records a second over the time since they were last asked for."""

    def __init__(self, totals: Facts) -> None:
        self._totals = totals
        self._at, self._produced, self._consumed = time.monotonic(), 0, 0

    def take(self) -> tuple[float, float]:
        now = time.monotonic()
        passed = max(now - self._at, 1e-9)
        rates = (self._totals.produced - self._produced) / passed, (self._totals.consumed - self._consumed) / passed
        self._at, self._produced, self._consumed = now, self._totals.produced, self._totals.consumed
        return rates


class LineView:
    def __init__(self, totals: Facts) -> None:
        self._totals, self._rates = totals, Rates(totals)
        self._next = time.monotonic() + 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def draw(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next += 1
        produced, consumed = self._rates.take()
        print(
            f"produced {self._totals.produced:,} ({produced:,.0f}/s)  consumed {self._totals.consumed:,} "
            f"({consumed:,.0f}/s)  skew {self._totals.skew or '-'}",
            flush=True,
        )


class TerminalView:
    def __init__(self, totals: Facts) -> None:
        from rich.live import Live

        self._totals, self._rates = totals, Rates(totals)
        self._shown = (0.0, 0.0)
        self._next = self._next_rates = time.monotonic()
        self._live = Live(auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, traceback)

    def draw(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _REDRAW_SECONDS
        if now >= self._next_rates:
            self._shown, self._next_rates = self._rates.take(), now + 1
        self._live.update(render(self._totals, self._shown), refresh=True)


def render(totals: Facts, rates: tuple[float, float]) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    flow = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in ("", "records", "records/s"):
        flow.add_column(column, justify="left" if not column else "right", header_style="dim")
    flow.add_row("produced", f"{totals.produced:,}", f"{rates[0]:,.0f}")
    flow.add_row("consumed", f"{totals.consumed:,}", f"{rates[1]:,.0f}")

    counts = totals.counts
    fullest = max(counts, default=0) or 1
    bars = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    for partition, number in enumerate(counts):
        bar = "█" * round(_BAR_WIDTH * number / fullest)
        bars.add_row(f"{partition:>9}", Text(bar, style="cyan"), f"{number:,}")

    last = Text("\n".join(totals.last), style="dim", no_wrap=True, overflow="ellipsis")
    heading = Text(f"partition  (skew {totals.skew or '-'}: fullest / mean)", style="dim")
    return Group(Text(), flow, Text(), heading, bars, Text(), last, Text("\nCtrl-C ends", style="dim"))
