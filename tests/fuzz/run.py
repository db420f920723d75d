"""What both fuzzers share: the seed, the clock, the report."""

import argparse
import random
import sys
import time
from collections.abc import Callable


class Finding(AssertionError):
    """Something that must never happen, with what is needed to see it again."""


def loop(name: str, seconds: float, seed: int, once: Callable[[random.Random], None], most: int | None = None) -> int:
    """Runs `once` with dice of its own for each turn until the time is up. Returns the number of turns."""
    turn = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and (most is None or turn < most):
        try:
            once(random.Random(f"{seed}/{turn}"))
        except Exception as error:
            raise Finding(f"{name}: seed {seed}, turn {turn}: {error}") from error
        turn += 1
    return turn


def main(name: str, fuzz: Callable[[float, int], int]) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{name}")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"{name}: seed {seed}", flush=True)
    try:
        turns = fuzz(arguments.seconds, seed)
    except Finding as finding:
        print(finding, file=sys.stderr)
        raise
    print(f"{name}: {turns:,} turns, nothing found")
