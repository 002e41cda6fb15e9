"""What the clients do: small programs, each about one promise or a few."""

from __future__ import annotations

from tests.simulation.run import Scenario
from tests.simulation.scenarios import (
    believing,
    by_token,
    calling,
    doubt,
    electing,
    ending,
    guarding,
    handing_over,
    keeping,
    passing,
    reading,
    recovering,
    retiring,
    several,
    sharing,
    slots,
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
    **handing_over.SCENARIOS,
    **by_token.SCENARIOS,
    **sharing.SCENARIOS,
    **passing.SCENARIOS,
    **recovering.SCENARIOS,
    **retiring.SCENARIOS,
    **electing.SCENARIOS,
    **slots.SCENARIOS,
    **reading.SCENARIOS,
}
