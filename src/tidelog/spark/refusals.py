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
        close = difflib.get_close_matches(key, by_name, 1)
        hint = f"; did you mean {by_name[close[0]]}?" if close else ""
        raise InvalidOption(f"{key} is not an option of the tidelog {where}{hint}")


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
