"""A majority of three databases: the plain course of each scenario."""

from __future__ import annotations

import pytest

from tests.simulation.exploring import replay
from tests.simulation.scenarios.quorum import SCENARIOS

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_violated(name: str) -> None:
    outcome = replay(f"sqlite {name}:")
    if outcome.violation is not None:
        raise outcome.violation


def test_a_schedule_gives_the_same_run_again() -> None:
    line = "sqlite quorum: a.m0.vote#1!unanswered b.m1.vote#1+1.7"
    first, second = replay(line), replay(line)
    assert "a.m0.vote#1" in first.steps
    assert (first.steps, first.story) == (second.steps, second.story)
