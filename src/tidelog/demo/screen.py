"""How the demo looks: a live screen in a terminal, a line a second anywhere else."""

import time
from types import TracebackType
from typing import Any, Final, Self

from tidelog.demo.performance import Scene

_BAR_WIDTH: Final = 40
_REDRAW_SECONDS: Final = 0.25
_MINUTES: Final = 8


class Rate:
    """A second, over the time since it was last asked."""

    def __init__(self) -> None:
        self._at, self._count = time.monotonic(), 0

    def of(self, count: int) -> float:
        now = time.monotonic()
        rate = (count - self._count) / max(now - self._at, 1e-9)
        self._at, self._count = now, count
        return rate


class LineView:
    def __init__(self) -> None:
        self._rate = Rate()
        self._next = time.monotonic() + 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def __call__(self, scene: Scene) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 1
        sent = scene.traffic.sent
        services = " ".join(f"{each.name} {each.handled:,}" for each in scene.services.all)
        spark = "" if scene.spark is None else f"  spark {scene.spark.state}, archived {scene.spark.archived:,}"
        print(f"produced {sent:,} ({self._rate.of(sent):,.0f}/s)  {services}{spark}", flush=True)


class TerminalView:
    def __init__(self) -> None:
        from rich.live import Live

        self._rate = Rate()
        self._shown = 0.0
        self._next = self._next_rate = time.monotonic()
        self._live = Live(auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, traceback)

    def __call__(self, scene: Scene) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _REDRAW_SECONDS
        if now >= self._next_rate:
            self._shown, self._next_rate = self._rate.of(scene.traffic.sent), now + 1
        self._live.update(render(scene, self._shown), refresh=True)


def render(scene: Scene, rate: float) -> Any:
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [
        Text(),
        Text.assemble(
            ("orders  ", "bold"), f"{scene.traffic.sent:,} events sent, {rate:,.0f}/s  ", (scene.phase, "dim")
        ),
        Text(),
        Columns([_services(scene), _partitions(scene)], padding=(0, 6)),
    ]
    if scene.spark is not None:
        parts += [Text(), _spark(scene)]
    return Group(*parts, Text("\nCtrl-C ends", style="dim"))


def _services(scene: Scene) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("group", "handled", "lag", ""):
        table.add_column(column, justify="left" if column in ("group", "") else "right", header_style="dim")
    services = scene.services
    business = {
        "billing": f"${services.billed_cents / 100:,.2f} billed",
        "fulfilment": f"{services.parcels:,} parcels",
        "fraud": f"{services.suspicious:,} suspicious orders",
        "analytics": f"{services.orders:,} orders",
    }
    for each in services.all:
        lag = max(scene.traffic.acknowledged - each.handled, 0)
        table.add_row(each.name, f"{each.handled:,}", f"{lag:,}", Text(each.failure or business[each.name]))
    return table


def _partitions(scene: Scene) -> Any:
    from rich.table import Table
    from rich.text import Text

    counts = [scene.traffic.per_partition[each] for each in range(scene.partitions)]
    fullest = max(counts, default=0) or 1
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    for partition, number in enumerate(counts):
        hot = number > 2 * sum(counts) / len(counts)
        bar = Text("█" * round(_BAR_WIDTH / 2 * number / fullest), style="red" if hot else "cyan")
        table.add_row(f"{partition:>3}", bar, f"{number:,}", "a hot key lives here" if hot else "")
    return table


def _spark(scene: Scene) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    assert scene.spark is not None
    spark = scene.spark
    says = f"{spark.state}; {spark.archived:,} events archived, once each; revenue by minute, without doubles:"
    heading = Text.assemble(("spark  ", "bold"), says)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    minutes = sorted(scene.revenue.items())[-_MINUTES:]
    most = max((cents for _, cents in minutes), default=0) or 1
    for minute, cents in minutes:
        table.add_row(minute, Text("█" * round(_BAR_WIDTH * cents / most), style="green"), f"${cents / 100:,.2f}")
    return Group(heading, table)
