"""Deterministic simulation: production code on a virtual clock, a network that loses and a disk that forgets.

python -m tests.simulation.raft --seed 7        replay one world, step by step
python -m tests.simulation.raft --seeds 2000    many, with a progress bar
python -m tests.simulation.mutations            plant each bug of a list and show it caught
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage"))  # the disk that can lose power
