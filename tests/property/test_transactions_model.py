"""Random lives of a whole broker with transactions: producers of both protocols that come back, time out, replace each
other, lose answers and send late; a broker that is killed, stopped, or loses its power or its disk; compaction. See
`txn_world_whole` for what must hold.

A failing run names its seed. `python -m tests.property.test_transactions_model --seed N` repeats it and tells what
happens; `--seeds A B` runs many.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import txn_machine  # noqa: F401  # where the disk and its helpers are found
from txn_world_whole import run

SEEDS = 2000
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_random_lives(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        run(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, SEEDS))
    parser.add_argument("--seconds", type=float, default=None)
    asked = parser.parse_args()
    options = {} if asked.seconds is None else {"seconds": asked.seconds}
    if asked.seed is not None:
        run(asked.seed, tracing=True, **options)
        return
    began, cpu = time.time(), time.process_time()
    failures: Counter[str] = Counter()
    transactions = 0
    for seed in range(*asked.seeds):
        try:
            transactions += len(run(seed, **options).txns)
        except BaseException as error:
            failures[str(error)[:100]] += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
            if isinstance(error, KeyboardInterrupt):
                break
    print(f"{transactions} transactions, {time.time() - began:.1f} s, {time.process_time() - cpu:.1f} s of CPU")
    for text, count in failures.most_common():
        print(f"{count:5} {text}")


if __name__ == "__main__":
    main()
