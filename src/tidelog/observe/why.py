"""Watch a group for a few seconds and say why it lags, or that nothing is wrong."""

from collections.abc import Mapping

from tidelog.groups.diagnosis import Diagnosis, Limits
from tidelog.groups.diagnosis import diagnose as judge
from tidelog.observe.clients import Clients
from tidelog.observe.observer import Observer


def diagnose(
    bootstrap: str,
    group: str,
    *,
    seconds: float = 3.0,
    properties: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Diagnosis:
    """Findings are worst first; a calm group has one of kind `nothing_wrong`, or `too_early_to_tell` as long as nobody
    could say so. `limits`: from where on something is worth telling.

    Where the coordinator keeps no samples, watch for ten seconds or more: clients commit every five by default.
    `properties` are librdkafka's client settings. Raises a `tidelog.errors.KafkaError` if there is no such group.
    """
    observer = Observer(Clients(bootstrap, properties), group)
    observer.watch(seconds)
    return judge(observer.facts(retention=True), limits)
