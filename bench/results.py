"""One measured figure, what it is compared to, and whether it is good enough."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    name: str
    value: float
    unit: str
    ratio: float | None = None  # to `limit`, the machine's own figure
    limit: str = ""
    target: str = ""
    ok: bool | None = None  # None: informative, no bar
    detail: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the machine gives to any program, measured just before the broker was."""

    loopback_mb_s: float
    sendfile_mb_s: float
    write_mb_s: float
    fdatasync_us: float
    echo_us: float


def quantile(samples: list[float], q: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))]
