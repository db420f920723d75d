"""Runs worlds by seed. A violation prints the seed, and how to see it step by step."""

import argparse
import logging
import sys
import time
from typing import Any

from tests.simulation.replication.storm import Storm

from tidelog.broker import logs


def run_one(seed: int, how: dict[str, Any]) -> None:
    world = Storm(seed, print, **how).run()
    acked = sum(checks.acked for checks in world.checks)
    print(f"seed {seed}: {world.steps} steps, {acked} writes acknowledged")


def options_of(how: dict[str, Any]) -> str:
    """How to say it on the command line."""
    flags = "".join(f" --{name}" for name, value in how.items() if value is True)
    return f"--partitions {how.get('partitions', 1)}{flags}"


def run_many(first: int, count: int, how: dict[str, Any]) -> int:
    began = time.process_time()
    failed: list[int] = []
    acked = epochs = begun = committed = commits = flips = found = 0
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            world = Storm(seed, **how).run()
            acked += sum(checks.acked for checks in world.checks)
            epochs += sum(len(checks.leaders) for checks in world.checks)
            commits += world.owners.commits if world.owners is not None else 0
            flips += world.flips
            found += world.found
            if world.readers is not None:
                begun += len(world.readers.txns)
                committed += sum(txn.told is True for txn in world.readers.txns)
        except Exception as error:
            failed.append(seed)
            print(f"\rseed {seed}: {type(error).__name__}: {error}")
        if done % 20 == 0 or done == count:
            rate = done / (time.process_time() - began) * 3600
            print(f"\r{done}/{count} seeds, {rate:,.0f} an hour of one core, {len(failed)} failed", end="", flush=True)
    print(f"\n{acked} writes acknowledged in {epochs} leader epochs")
    if begun:
        print(f"{begun} transactions, {committed} commits acknowledged")
    if commits:
        print(f"{commits} offsets committed by a group")
    if flips:
        print(f"{flips} bits flipped, {found} times a recovery found one")
    if failed:
        print(f"step by step: python -m tests.simulation.replication --seed {failed[0]} {options_of(how)}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one world, step by step")
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--retries", action="store_true", help="with a client that retries until it is told")
    parser.add_argument("--partitions", type=int, default=1, help="how many partitions the topic has")
    parser.add_argument("--transactions", action="store_true", help="with clients that write in transactions")
    parser.add_argument("--groups", action="store_true", help="with members of a group that commit offsets")
    parser.add_argument("--clocks", action="store_true", help="the wall clocks of brokers jump by days")
    parser.add_argument("--rot", action="store_true", help="bits flip on disks, and reads fail")
    parser.add_argument("--compaction", action="store_true", help="brokers keep only the last record of each key")
    options = parser.parse_args()
    logs.show(logging.CRITICAL)  # coordinators warn of what the storm does to them
    how = {
        "retries": options.retries,
        "partitions": options.partitions,
        "transactions": options.transactions,
        "groups": options.groups,
        "clocks": options.clocks,
        "rot": options.rot,
        "compaction": options.compaction,
    }
    if options.seed is not None:
        run_one(options.seed, how)
        return 0
    return run_many(options.first, options.seeds, how)


if __name__ == "__main__":
    sys.exit(main())
