import pytest

from tidelog.storage.epochs import EpochsCorrupt, LeaderEpochs


@pytest.fixture
def epochs() -> LeaderEpochs:
    found = LeaderEpochs()
    for epoch, start in ((1, 0), (2, 10), (5, 20)):
        assert found.assign(epoch, start)
    return found


def test_the_file_is_kafkas(epochs: LeaderEpochs) -> None:
    assert epochs.encode() == b"0\n3\n1 0\n2 10\n5 20\n"
    assert LeaderEpochs.decode(epochs.encode()).entries == epochs.entries


@pytest.mark.parametrize(
    "text",
    [b"", b"0", b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\n1 0", b"0\n1\nx y\n", b"0\n2\n2 0\n1 5\n", b"\0" * 20, b"\xff"],
)
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(EpochsCorrupt):
        LeaderEpochs.decode(text)


def test_assigning_goes_forward_and_an_epoch_without_batches_leaves_no_trace(epochs: LeaderEpochs) -> None:
    assert not epochs.assign(5, 25)
    assert not epochs.assign(3, 25)
    assert epochs.assign(6, 30)
    assert epochs.assign(7, 30)
    assert epochs.entries[-2:] == [(5, 20), (7, 30)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (5, (5, 33)), (6, (-1, -1)), (-1, (-1, -1)), (0, (0, 0))],
)
def test_where_an_epoch_ended(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset_for(asked, 33) == answer


def test_the_epoch_of_an_offset(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 19, 20, 99)] == [1, 1, 2, 2, 5, 5]
    assert LeaderEpochs().epoch_of(0) == -1


def test_cutting_both_ends(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(20)
    assert epochs.entries == [(1, 0), (2, 10)]
    epochs.truncate_from_start(12)
    assert epochs.entries == [(2, 12)]
    epochs.truncate_from_start(12)
    assert epochs.entries == [(2, 12)]
