"""What the clients do: small programs, each about one promise or a few."""

from __future__ import annotations

from tests.simulation.run import Scenario
from tests.simulation.scenarios import (
    believing,
    by_token,
    calling,
    contending,
    doubt,
    electing,
    ending,
    guarding,
    handover,
    keeping,
    limiting,
    queueing,
    quorum,
    recovering,
    retiring,
    semaphore,
    several,
    shared,
    users,
    waiting,
)

SCENARIOS: dict[str, Scenario] = {
    **waiting.SCENARIOS,
    **keeping.SCENARIOS,
    **ending.SCENARIOS,
    **several.SCENARIOS,
    **users.SCENARIOS,
    **calling.SCENARIOS,
    **doubt.SCENARIOS,
    **believing.SCENARIOS,
    **guarding.SCENARIOS,
    **handover.SCENARIOS,
    **by_token.SCENARIOS,
    **contending.SCENARIOS,
    **queueing.SCENARIOS,
    **quorum.SCENARIOS,
    **recovering.SCENARIOS,
    **retiring.SCENARIOS,
    **electing.SCENARIOS,
    **semaphore.SCENARIOS,
    **limiting.SCENARIOS,
    **shared.SCENARIOS,
}
