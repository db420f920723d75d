"""The side-by-side harness where it only computes: medians and spread, turns, resuming, the table, the charts."""

import fcntl
import os
import struct
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.peers import charts, processes, raw, report, table
from bench.peers.rows import ROWS
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, RowResult, Sample, Values, missing_turns, summarize
from bench.peers.servers import LAUNCHERS
from bench.peers.servers.broker import Broker
from bench.peers.sessions import amqp, redis
from bench.peers.store import Store
from bench.peers.turnstile import Turnstile

RATE = Metric("rate", "records/s", Better.HIGHER, target=1.0)
P99 = Metric("p99_us", "p99 µs", target=0.5)


def never(broker: Broker) -> Values:
    raise AssertionError("no broker is needed here")


ROW = Row(name="row", title="produce", guarantee="on disk", metrics=(RATE, P99), measure=never)


def sample(side: str, number: int, **values: float) -> Sample:
    return Sample(side=side, round=number, values=values, load=1.5, other_cores=0.25)


@pytest.fixture
def result() -> RowResult:
    ours = [sample("tidelog", number, rate=rate, p99_us=100) for number, rate in enumerate((90, 100, 130))]
    theirs = [sample("kafka", number, rate=50, p99_us=400) for number in range(3)]
    return RowResult([*ours, *theirs])


def test_the_median_and_half_the_range_are_told() -> None:
    found = summarize([90, 130, 100])
    assert found is not None
    assert (found.median, found.least, found.most, found.count) == (100, 90, 130, 3)
    assert found.spread == pytest.approx(0.2)
    assert summarize([]) is None


def test_a_ratio_is_of_medians_and_none_without_both(result: RowResult) -> None:
    assert result.ratio("rate", "tidelog", "kafka") == 2
    assert result.ratio("rate", "tidelog", "redis") is None
    assert result.ratio("missing", "tidelog", "kafka") is None


@pytest.mark.parametrize(("metric", "ratio", "met"), [(RATE, 1.0, True), (RATE, 0.9, False), (P99, 0.5, True)])
def test_a_target_knows_its_direction(metric: Metric, ratio: float, met: bool) -> None:
    assert metric.met(ratio) is met
    assert Metric("x", "x").met(ratio) is None


def test_sides_take_turns_and_a_stopped_run_goes_on_where_it_was() -> None:
    sides = ("tidelog", "kafka")
    assert missing_turns(RowResult(), sides, 2) == [(0, "tidelog"), (0, "kafka"), (1, "tidelog"), (1, "kafka")]
    stopped = RowResult([sample("tidelog", 0), sample("kafka", 0), sample("tidelog", 1)])
    assert missing_turns(stopped, sides, 2) == [(1, "kafka")]
    assert missing_turns(RowResult(absent={"kafka": "no package"}), sides, 1) == [(0, "tidelog")]


def test_the_file_has_every_sample_as_soon_as_it_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "results" / "peers.json"
    store = Store(path)
    store.versions["kafka"] = "Apache Kafka"
    store.add("row", sample("tidelog", 0, rate=1.0))
    store.row("row").absent["redis"] = "no package"
    store.add("row", sample("kafka", 0, rate=2.0))

    again = Store(path)
    assert again.rows == store.rows
    assert again.versions == {"kafka": "Apache Kafka"}
    assert again.machine["cores"]
    again.forget("row")
    assert again.row("row").samples == []


def test_noisy_turns_can_be_taken_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "peers.json")
    store.row("row").samples = [
        Sample(side="tidelog", round=number, values={}, other_cores=cores) for number, cores in enumerate((0.1, 0.9))
    ]
    store.drop_noisy(0.25)
    assert missing_turns(store.row("row"), ["tidelog"], 2) == [(1, "tidelog")]


def test_the_table_states_guarantee_spread_ratio_and_verdict(result: RowResult) -> None:
    text = table.against_kafka([ROW], {"row": result})
    rate, p99 = text.splitlines()[2:]
    assert rate == "| produce · accepted: on disk | records/s | 100 ±20% | 50 ±0% | 2.00× | ≥ 1× | met |"
    assert p99 == "|  | p99 µs | 100 ±0% | 400 ±0% | 0.25× | ≤ 0.5× | met |"
    result.samples = [each if each.side == "kafka" else sample("tidelog", 0, rate=10) for each in result.samples]
    assert "**missed**" in table.against_kafka([ROW], {"row": result})


def test_a_row_of_many_has_a_line_each_and_says_who_is_absent(result: RowResult) -> None:
    row = Row(name="row", title="t", guarantee="g", metrics=(RATE,), measure=never, sides=("tidelog", "kafka", "redis"))
    result.absent["redis"] = "no package"
    text = table.among_peers([row], {"row": result}, {"tidelog": "Tidelog 1, Python 3"})
    assert "| Tidelog 1 | 100 ±20% |" in text
    assert "| redis | no package |" in text
    assert table.among_peers([ROW], {"row": result}, {}) == ""


def test_a_row_without_figures_is_named(result: RowResult) -> None:
    assert table.unmeasured([ROW], {"row": result}) == ""
    assert table.unmeasured([ROW], {"row": RowResult()}) == "Without figures in this run: row."


def test_the_noise_of_the_machine_is_told(result: RowResult) -> None:
    assert "6 samples" in table.noise([result])
    assert "median 1.5" in table.noise([result])
    assert table.noise([]) == ""


@pytest.mark.parametrize(("value", "text"), [(1.234e6, "1.23 M"), (45_600, "46 k"), (999, "999"), (0.0712, "0.0712")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert table.number(value) == text


def test_charts_are_xml_with_a_bar_per_figure_that_has_a_target(result: RowResult) -> None:
    picture = charts.all_charts([ROW], {"row": result})["ratios"]
    texts = [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]
    assert "produce: records/s" in texts
    assert "2×" in texts  # twice the rate
    assert "4×" in texts  # a quarter of the time
    assert charts.all_charts([ROW], {}) == {}


def test_better_is_to_the_right_whatever_the_unit() -> None:
    assert charts.times_better(RATE, 3.0) == 3.0
    assert charts.times_better(P99, 0.25) == 4.0


def test_the_lock_is_kept_over_rounds_and_given_back_in_time(tmp_path: Path) -> None:
    def is_free(path: Path) -> bool:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    path = tmp_path / "lock"
    patient, hasty, said = Turnstile(path, hold_s=60), Turnstile(path, hold_s=0), list[str]()
    for _ in range(2):
        with patient.one_round(said.append):
            assert not is_free(path)
        assert not is_free(path)
    patient.leave()
    with hasty.one_round(said.append):
        assert not is_free(path)
    assert is_free(path)
    assert said == ["waits for the machine"] * 2
    with Turnstile(None).one_round(said.append):
        assert is_free(path)


def test_rows_have_names_of_their_own_and_one_way_to_be_measured() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all((row.measure is None) != (row.from_start is None) for row in ROWS)
    assert all(row.guarantee for row in ROWS)


def test_numbers_in_raw_requests_are_where_they_are_said_to_be() -> None:
    batch = raw.batch(2, 10, first_key=5)
    request = raw.produce("topic", batch, partition=77)
    at = raw.partition_at(request, batch)
    assert request[at : at + 4] == (77).to_bytes(4, "big")
    fetch, offset_at, head = raw.waiting_fetch("topic")
    assert fetch[offset_at - 4 : offset_at] != fetch[offset_at : offset_at + 4]
    assert head > len("topic")


def test_a_page_gets_the_table_between_its_marks_and_the_chart_beside_it(tmp_path: Path, result: RowResult) -> None:
    store, page = Store(tmp_path / "peers.json"), tmp_path / "page.md"
    store.rows["row"] = result
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    assert report.publish(store, [ROW], page) == [page, tmp_path / "peers-ratios.svg"]
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "2.00×" in text
    assert "old" not in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no"):
        report.publish(store, [ROW], page)


def test_a_run_is_written_next_to_its_samples(tmp_path: Path, result: RowResult) -> None:
    store = Store(tmp_path / "peers.json")
    store.rows["row"] = result
    table_page, chart = report.write(store, [ROW], tmp_path, "peers")
    assert "met" in table_page.read_text()
    assert chart.read_text().startswith("<svg")


def test_a_publish_is_three_frames_with_the_record_last() -> None:
    data, frames = amqp.publish("queue", b"record"), []
    while data:
        kind, channel, size = struct.unpack_from(">BHI", data)
        assert channel == 1
        assert data[7 + size] == 0xCE
        frames.append((kind, data[7 : 7 + size]))
        data = data[8 + size :]
    assert [kind for kind, _ in frames] == [amqp.METHOD, amqp.HEADER, amqp.BODY]
    assert frames[2][1] == b"record"
    assert int.from_bytes(frames[1][1][4:12], "big") == len(b"record")


def test_a_redis_command_counts_its_words_and_their_bytes() -> None:
    assert redis.command(b"XADD", b"s", b"*") == b"*3\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n"


def test_every_side_of_a_row_can_be_started() -> None:
    known = {launcher.side for launcher in LAUNCHERS}
    assert all(set(row.sides) <= known for row in ROWS)


def test_memory_cpu_and_disk_are_those_of_the_processes_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100_000))
    assert processes.disk_bytes(tmp_path) >= 100_000
    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            assert child.pid in processes.tree([os.getpid()])
            assert processes.rss_mb([os.getpid()]) > 5
            assert processes.cpu_s([child.pid]) < 1
        finally:
            child.kill()
    assert processes.rss_mb([child.pid]) == 0
    assert processes.Bystanders((os.getpid(),)).cores() >= 0
