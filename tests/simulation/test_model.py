"""The model does what the server does: the same schedules on both, step by step."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.explore import deviations, faults
from tests.simulation.exploring import store_of
from tests.simulation.run import Outcome, run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.stores import HAS

#: So many schedules of each scenario, chosen once for all.
SAMPLE = 12


pytestmark = pytest.mark.usefixtures("folder")

#: These write where the users have transactions, which is not so in the model.
WRITING = {"forced", "cycle", "readers", "readers-wait", "reader-dies", "used-while-given-back"}
#: Here who waits for a row and who tries it for a moment meet again and again; the server has an
#: order for them that the model has not.
ROWS = {"retired-beside-waiters"}
BOTH = HAS["model"] & HAS["postgresql"]
MODELLED = (name for name, one in SCENARIOS.items() if one.needs <= BOTH)
SAME = [name for name in MODELLED if name not in WRITING | ROWS]


@pytest.mark.parametrize("name", SAME)
def test_the_model_does_what_the_server_does(name: str) -> None:
    scenario = SCENARIOS[name]
    model, server = store_of("model"), store_of("postgresql")
    plain = run(scenario, model, Schedule())
    changes = [*deviations(plain), *faults(plain, 0, server.faults)]
    for label, change in Random(1).sample(changes, SAMPLE):
        schedule = Schedule().plus(label, change)
        modelled, real = run(scenario, model, schedule), run(scenario, server, schedule)
        assert modelled.story == real.story, str(schedule)
        assert _clients(modelled) == _clients(real), str(schedule)


def _clients(outcome: Outcome) -> list[str]:
    """Return the steps of the clients: the model's server does not look for deadlocks."""
    return [step for step in outcome.steps if not step.startswith("server.")]
