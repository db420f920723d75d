"""How long one record takes: its acknowledgement alone, and from producer to waiting consumer."""

from bench import native, requests
from bench.limits import echo_us
from bench.produce import check_end
from bench.results import Limits, Result
from bench.target import Target


def measure(target: Target, limits: Limits) -> list[Result]:
    results = [_acknowledged(target, limits, acks=1, flush=None)]
    for flush in ("false", "true"):
        topic = target.make_topic("probe", config={"flush.on.ack": flush})
        if topic is not None:  # a broker that does not know the setting has one kind of acks=all only
            target.delete_topic(topic)
            results.append(_acknowledged(target, limits, acks=-1, flush=flush))
    return [*results, _end_to_end(target)]


def _acknowledged(target: Target, limits: Limits, acks: int, flush: str | None) -> Result:
    topic = target.make_topic("latency", config={"flush.on.ack": flush} if flush else None)
    assert topic is not None
    request = target.work_dir / "request"
    request.write_bytes(requests.produce(topic, requests.batch(1, 100), acks))
    synced = flush == "true"
    count = target.scaled(2000 if synced else 20_000)
    took = native.run("blast", "send", target.host, target.port, request, count, 1)
    check_end(target, topic, count)
    target.delete_topic(topic)

    # Measured again next to each figure: on a shared machine a floor from a minute ago is another machine's floor.
    size = request.stat().st_size - 4
    echo = echo_us(request_bytes=size, response_bytes=60, count=target.scaled(10_000), work_dir=target.work_dir)
    floor, limit = (echo + limits.fdatasync_us, "echo + fdatasync") if synced else (echo, "C echo round trip")
    ratio = took["p50_us"] / floor
    return Result(
        name=f"one record per request, acks={'all' if acks < 0 else acks}"
        + (f", flush.on.ack={flush}" if flush else ""),
        value=took["p50_us"],
        unit="µs p50",
        ratio=ratio,
        limit=limit,
        target="ratio ≤ 4" if acks == 1 else "",
        ok=ratio <= 4 if acks == 1 else None,
        detail={"p99_us": took["p99_us"], "requests_per_s": count / took["seconds"], "floor_us": floor},
    )


def _end_to_end(target: Target) -> Result:
    topic = target.make_topic("e2e")
    assert topic is not None
    took = native.rdload("e2e", target.bootstrap, topic, target.scaled(5000), 1000, 100, linger_ms=0, acks=1)
    target.delete_topic(topic)
    return Result(
        name="end to end at 1,000/s, librdkafka, acks=1",
        value=took["p50_us"],
        unit="µs p50",
        detail={"p99_us": took["p99_us"]},
    )
