"""What the simulation has found in dblock: each a schedule that failed."""

from __future__ import annotations

import pytest

from tests.simulation.run import run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.store import Store
from tests.simulation.stores.sqlite import SQLiteStore

# What it was, the store, the scenario and the schedule.
FOUND = [
    (
        "a connection that breaks before anything was sent leaves the outcome unknown",
        "sqlite",
        "hand-off",
        "a.select#1+8",
    ),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    return {"sqlite": SQLiteStore(tmp_path_factory.mktemp("simulated"))}


@pytest.mark.parametrize(
    ("store", "scenario", "schedule"), [found[1:] for found in FOUND], ids=[f[0] for f in FOUND]
)
def test_it_is_mended(stores: dict[str, Store], store: str, scenario: str, schedule: str) -> None:
    outcome = run(SCENARIOS[scenario], stores[store], Schedule.parse(schedule))
    if outcome.violation is not None:
        raise outcome.violation
