"""Options that neither the source nor the sink takes, refused in the same words."""

import difflib
from collections.abc import Iterable, Mapping

from tidelog.spark.bounds import InvalidOption


def refuse_unknown(
    options: Mapping[str, str], known: Iterable[str], where: str, *, ignored: Iterable[str] = ()
) -> None:
    """Every option but `kafka.*` must be known; a mistyped one is told what it resembles."""
    by_name = {name.lower(): name for name in known}
    for key in options:
        if key in by_name or key in ignored or key.startswith("kafka."):
            continue
        if key == "bootstrap.servers":
            raise InvalidOption("bootstrap.servers is not an option; write kafka.bootstrap.servers")
        raise InvalidOption(f"{key} is not an option of the tidelog {where}{_hint(key, by_name)}")


def refuse_unknown_kafka(kafka: Mapping[str, str], known: Iterable[str], where: str) -> None:
    names = {f"kafka.{name}": f"kafka.{name}" for name in known}
    for name in (f"kafka.{each}" for each in kafka):
        if name not in names:
            raise InvalidOption(f"{name} is not a setting of the tidelog {where}{_hint(name, names)}")


def _hint(name: str, known: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {known[close[0]]}?" if close else ""


def refuse_kafka(kafka: Mapping[str, str], refused: Mapping[str, str], where: str) -> None:
    for name, instead in refused.items():
        if name in kafka:
            raise InvalidOption(f"kafka.{name} is not supported: {instead}")
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise InvalidOption(
            f"kafka.security.protocol={protocol} is not supported: this {where} connects by PLAINTEXT only; "
            "use a listener without TLS and SASL on a network you trust"
        )
