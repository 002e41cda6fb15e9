"""The scheduler itself: it goes through what it says, and sees what goes wrong."""

from __future__ import annotations

import math

import pytest

from dblock.protocol.term import Term, margin

from .exploring import Failed, Scenario, WrongSchedule, explore, replay, sample
from .scheduler import Run, Stuck
from .standard import Condition, Event, RLock


def made(function: object, *, preemptions: int = 2, early: bool = True) -> Scenario:
    """A scenario that takes threads off where it pauses, and in no code of dblock's."""
    return Scenario(function, (), preemptions, early)  # type: ignore[arg-type]


def update(run: Run, counter: list[int]) -> None:
    """Read, then write, with nothing to keep another from doing so between."""
    run.pause("read")
    read = counter[0]
    run.pause("write")
    counter[0] = read + 1


def lost_update(run: Run) -> None:
    counter = [0]
    for name in ("one", "two"):
        run.start(name, lambda: update(run, counter))
    run.go()
    assert counter == [2]


def test_a_lost_update_is_found_with_one_preemption() -> None:
    scenario = made(lost_update)
    assert explore(scenario, preemptions=0) == 2
    with pytest.raises(Failed) as found:
        explore(scenario)
    assert len(found.value.schedule.splitlines()) == 1
    with pytest.raises(Failed):
        sample(scenario, seed=1, schedules=100)


def test_a_schedule_is_replayed_as_it_is_written() -> None:
    with pytest.raises(AssertionError, match=r"\[1\]"):
        replay(made(lost_update), "one at pause `write`: two")
    replay(made(lost_update), "begin: two\ntwo at pause `read`: one")
    for wrong in ("one at pause `somewhere`: two", "one at pause `write`: three"):
        with pytest.raises(WrongSchedule):
            replay(made(lost_update), wrong)


@pytest.mark.parametrize("preemptions", [0, 1, 2, 3])
def test_every_schedule_is_gone_through_once(preemptions: int) -> None:
    """Two threads that can be taken off in one place each: there are six ways to mix them."""
    seen: list[str] = []

    def mixed(run: Run) -> None:
        order: list[str] = []

        def go(name: str) -> None:
            order.append(name)
            run.pause("between")
            order.append(name)

        run.start("a", lambda: go("a"))
        run.start("b", lambda: go("b"))
        run.go()
        seen.append("".join(order))

    explore(made(mixed), preemptions=preemptions)
    within = {"aabb": 0, "bbaa": 0, "abba": 1, "baab": 1, "abab": 2, "baba": 2}
    assert sorted(seen) == sorted(way for way, needed in within.items() if needed <= preemptions)


def test_a_deadlock_is_seen() -> None:
    def deadlock(run: Run) -> None:
        locks = RLock(run), RLock(run)

        def both(first: RLock, second: RLock) -> None:
            with first:
                run.pause("one is had")
                with second:
                    pass

        run.start("one", lambda: both(*locks))
        run.start("two", lambda: both(*reversed(locks)))
        run.go()

    with pytest.raises(Failed, match="nobody can go on") as found:
        explore(made(deadlock))
    assert isinstance(found.value.error, Stuck)


def test_who_goes_round_for_ever_is_seen() -> None:
    def loop(run: Run) -> None:
        def spin() -> None:
            while True:
                run.pause("spinning")

        run.start("one", spin)
        run.go()

    with pytest.raises(Failed, match="round for ever"):
        explore(made(loop))


def test_time_passes_where_nobody_can_go_on() -> None:
    def waits(run: Run) -> None:
        began, event = run.now, Event(run)
        came: list[bool] = []
        run.start("one", lambda: came.append(event.wait(5.0)))
        run.start("two", lambda: run.sleep(3.0))
        run.go()
        assert came == [False]
        assert run.now == began + 5.0

    explore(made(waits, early=False))


@pytest.mark.parametrize("early", [False, True])
def test_a_wait_ends_early_only_where_that_is_asked_for(early: bool) -> None:
    outcomes: set[bool] = set()

    def waits(run: Run) -> None:
        event = Event(run)

        def tell() -> None:
            run.pause("telling")
            event.set()

        run.start("one", lambda: outcomes.add(event.wait(5.0)))
        run.start("two", tell)
        run.go()

    explore(made(waits, early=early))
    assert outcomes == ({True, False} if early else {True})


def test_a_condition_wakes_as_many_as_it_says() -> None:
    def notified(run: Run) -> None:
        condition = Condition(run)
        woken: list[bool] = []

        def wait() -> None:
            with condition:
                woken.append(condition.wait(5.0))

        for name in ("one", "two"):
            run.start(name, wait, alike=condition)
        run.start("three", lambda: tell(run, condition))
        run.go()
        assert sorted(woken) == [False, True]

    def tell(run: Run, condition: Condition) -> None:
        run.wait(lambda: len(condition._waiting) == 2)
        with condition:
            condition.notify()

    explore(made(notified, early=False))


def test_lines_of_dblock_are_places() -> None:
    terms: list[Term] = []

    def reads(run: Run) -> None:
        for name in ("one", "two"):
            run.start(name, lambda: terms.append(Term(run.now, 30.0)))
        run.go()

    scenario = Scenario(reads, (Term, margin), 1, early=True)
    assert explore(scenario) > 2
    replay(scenario, "one at margin `return min(ttl * MARGIN_SHARE, MARGIN_MAX)`: two")
    assert math.isclose(terms[0].deadline, 1000.0 + 27.0)
