"""Plants each bug of the list and shows that the checks see it: python -m tests.simulation.mutations [name ...]

A checker counts only once it has caught what it is there for.
"""

import argparse
import sys
from time import process_time
from typing import NamedTuple

from tests.simulation.checks import Violation
from tests.simulation.planted import MUTATIONS, Mutation
from tests.simulation.raft import run


class Catch(NamedTuple):
    seed: int
    tried: int
    violation: str


def hunt(mutation: Mutation, most: int = 3000) -> Catch | None:
    """The first world in which the planted bug shows."""
    for tried, seed in enumerate([*mutation.seeds, *range(most)], start=1):
        try:
            run(seed, mutation)
        except Violation as violation:
            return Catch(seed, tried, str(violation))
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--most", type=int, default=3000)
    arguments = parser.parse_args()
    missed = 0
    for mutation in MUTATIONS:
        if arguments.names and mutation.name not in arguments.names:
            continue
        begin = process_time()
        catch = hunt(mutation, arguments.most)
        seconds = process_time() - begin
        if catch is None:
            missed += 1
            print(f"MISSED {mutation.name} after {seconds:.1f} s", flush=True)
        else:
            print(f"caught {mutation.name} after {catch.tried} worlds, {seconds:.1f} s: {catch.violation}", flush=True)
            print(f"       python -m tests.simulation.raft --planted {mutation.name} --seed {catch.seed}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
