"""Bugs that are planted are found."""

from __future__ import annotations

import pytest

from .catalogue import SCENARIOS
from .exploring import Failed, explore, replay
from .planted import PLANTED, Planted


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: f"{bug.function}: {bug.new}")
def test_it_is_found(bug: Planted) -> None:
    scenario = SCENARIOS[bug.scenario]
    with bug.plant():
        with pytest.raises(Failed) as found:
            explore(scenario)
        with pytest.raises(type(found.value.error)):
            replay(scenario, found.value.schedule)
    print(found.value)
