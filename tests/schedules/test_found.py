"""What was found in dblock is mended; and it is what it was that was wrong."""

from __future__ import annotations

import contextlib

import pytest

from .catalogue import SCENARIOS
from .exploring import WrongSchedule, replay
from .found import FOUND


@pytest.mark.parametrize("what", FOUND)
def test_it_is_fixed(what: str) -> None:
    before, schedule = FOUND[what]
    scenario = SCENARIOS[before.scenario]
    with before.plant(), pytest.raises(Exception) as failure:  # noqa: PT011 - of any kind
        replay(scenario, schedule)
    assert not isinstance(failure.value, WrongSchedule), failure.value
    with contextlib.suppress(WrongSchedule):  # it cannot even be come to by now
        replay(scenario, schedule)
