"""Runs worlds by seed. A violation prints the seed, and how to see it step by step."""

import argparse
import sys
import time

from tests.simulation.replication.storm import Storm


def run_one(seed: int, *, retries: bool, partitions: int) -> None:
    world = Storm(seed, print, retries=retries, partitions=partitions).run()
    acked = sum(checks.acked for checks in world.checks)
    print(f"seed {seed}: {world.steps} steps, {acked} writes acknowledged")


def run_many(first: int, count: int, *, retries: bool, partitions: int) -> int:
    began = time.process_time()
    failed: list[int] = []
    acked = epochs = 0
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            for checks in Storm(seed, retries=retries, partitions=partitions).run().checks:
                acked += checks.acked
                epochs += len(checks.leaders)
        except Exception as error:
            failed.append(seed)
            print(f"\rseed {seed}: {type(error).__name__}: {error}")
        if done % 20 == 0 or done == count:
            rate = done / (time.process_time() - began) * 3600
            print(f"\r{done}/{count} seeds, {rate:,.0f} an hour of one core, {len(failed)} failed", end="", flush=True)
    print(f"\n{acked} writes acknowledged in {epochs} leader epochs")
    if failed:
        how = f"--seed {failed[0]} --partitions {partitions}{' --retries' * retries}"
        print(f"step by step: python -m tests.simulation.replication {how}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one world, step by step")
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--retries", action="store_true", help="with a client that retries until it is told")
    parser.add_argument("--partitions", type=int, default=1, help="how many partitions the topic has")
    options = parser.parse_args()
    how = {"retries": options.retries, "partitions": options.partitions}
    if options.seed is not None:
        run_one(options.seed, **how)
        return 0
    return run_many(options.first, options.seeds, **how)


if __name__ == "__main__":
    sys.exit(main())
