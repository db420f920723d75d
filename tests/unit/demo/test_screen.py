"""How the demo looks, in a terminal and elsewhere."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tidelog.demo.performance import Account, Scene, accounts
from tidelog.demo.screen import LineView, render
from tidelog.demo.services import Services
from tidelog.demo.shop import Shop
from tidelog.demo.traffic import Traffic


class Idle:
    """A client without a broker: nothing is sent or read here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: []


def scene(**spark: Any) -> Scene:
    shop = Shop(Random(1), "run")
    made = Scene(
        Traffic(Idle(), "orders", shop, 1000),
        Services(lambda group: Idle(), "orders", "run"),
        shop,
        SimpleNamespace(**spark) if spark else None,  # type: ignore[arg-type]
        partitions=4,
    )
    made.traffic.sent = made.traffic.acknowledged = 1200
    made.traffic.per_partition.update({0: 100, 1: 900, 2: 100, 3: 100})
    made.services.all[0].handled = 1100
    made.services.all[1].failure = "[red]KafkaError: gone"
    return made


def drawn(made: Scene, capfd: pytest.CaptureFixture[str]) -> str:
    Console(width=140).print(render(made, 10.0))
    return capfd.readouterr().out


def test_the_screen(capfd: pytest.CaptureFixture[str]) -> None:
    made = scene(state="running", archived=777)
    made.revenue = {"10:00": 50_000, "10:01": 100_000}
    shown = drawn(made, capfd)
    for said in ("1,200 events sent", "billing", "1,100", "a hot key lives here", "777 events archived", "$1,000.00"):
        assert said in shown
    assert "[red]KafkaError" in shown  # hostile text is text


def test_without_spark_nothing_is_said_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert "spark" not in drawn(scene(), capfd)


def test_a_line_a_second(capfd: pytest.CaptureFixture[str]) -> None:
    with LineView() as view:
        view(scene())
        assert capfd.readouterr().out == ""
        view._next = 0.0
        view(scene())
    assert capfd.readouterr().out.startswith("produced 1,200 (")


def test_accounts_hold_only_if_everybody_counted_right() -> None:
    made = scene(last={"rows": 1200, "distinct": 0, "revenue_cents": 5})
    by_what = {each.what: each for each in accounts(made)}
    assert by_what["events acknowledged"].holds
    assert not by_what["events handled by billing"].holds
    assert by_what["events archived"].holds
    assert not by_what["cents in the archive"].holds
    assert not Account("x", 1, 2).holds
