"""A short run of each fuzzer, from seeds that never change; the long runs have new ones."""

from tests.fuzz import frames, recovery


def test_frames() -> None:
    assert frames.fuzz(seconds=200, seed=1, most=1500) == 1500


def test_recovery() -> None:
    assert recovery.fuzz(seconds=200, seed=1, most=600) == 600
