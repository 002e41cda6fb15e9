"""Every scenario comes out as it has to, under every schedule within its bound and some beyond."""

from __future__ import annotations

import pytest

from .catalogue import SCENARIOS
from .exploring import explore, sample

SEED, SCHEDULES = 1, 60


@pytest.mark.parametrize("name", SCENARIOS)
def test_under_every_schedule(name: str) -> None:
    explore(SCENARIOS[name])


@pytest.mark.parametrize("name", SCENARIOS)
def test_under_some_schedules_beyond(name: str) -> None:
    sample(SCENARIOS[name], SEED, SCHEDULES)
