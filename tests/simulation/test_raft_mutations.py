"""Each planted bug is seen: a checker counts only once it has caught what it is there for."""

import pytest
from tests.simulation.mutations import hunt
from tests.simulation.planted import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_planted_bug_is_caught(mutation: Mutation) -> None:
    assert hunt(mutation) is not None
