"""The loop lets events happen in the order of their times."""

from __future__ import annotations

from types import SimpleNamespace

from tests.simulation.loop import Loop
from tests.simulation.schedule import Schedule


def test_what_a_pause_holds_up_happens_when_it_is_over() -> None:
    """Though the rest of the pause is rounded: from there it would end before the pause does."""
    begins, ends = 1.9851, 10.8131
    assert begins + (ends - begins) < ends
    loop, happened = Loop(Schedule()), list[float]()
    client = SimpleNamespace(alive=True, paused_until=ends)
    loop.at(begins, "first", lambda: None)
    loop.at(begins, "held up", lambda: happened.append(loop.now), client)
    loop.run()
    assert happened == [ends]
