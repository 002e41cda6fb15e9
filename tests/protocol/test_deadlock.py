"""Which of those who wait is told of a cycle: exactly one of each, and nobody without one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dblock.protocol.deadlock import Blocked, find_cycle

START = datetime(2026, 1, 1, tzinfo=UTC)
FENCE = 7


def blocked(number: int, wants: int, came: int = 0) -> Blocked:
    """One who holds the name of its number and wants another's."""
    since = START + timedelta(seconds=came)
    return Blocked(str(number), str(wants), FENCE, f"flow {number}", since, {str(number): FENCE})


def told(waiters: list[Blocked]) -> dict[str, list[str]]:
    """The cycles that are found, by who finds them."""
    found = {one.id: find_cycle(waiters, one.id) for one in waiters}
    return {id: [one.id for one in cycle] for id, cycle in found.items() if cycle is not None}


def test_the_last_to_come_is_told() -> None:
    assert told([blocked(1, 2, came=5), blocked(2, 3, came=9), blocked(3, 1, came=7)]) == {
        "2": ["2", "3", "1"]
    }


def test_of_those_who_came_at_once_one_is_told() -> None:
    assert told([blocked(1, 2), blocked(2, 1)]) == {"2": ["2", "1"]}


def test_a_chain_is_no_cycle() -> None:
    assert told([blocked(1, 2), blocked(2, 3), blocked(3, 4)]) == {}


def test_who_waits_for_a_cycle_is_not_in_it() -> None:
    assert list(told([blocked(1, 2), blocked(2, 1), blocked(3, 1, came=9)])) == ["2"]


def test_who_is_not_written_down_yet_finds_nothing() -> None:
    assert find_cycle([blocked(1, 2), blocked(2, 1)], "3") is None


def test_a_hold_of_earlier_keeps_nobody() -> None:
    stale = blocked(1, 2)._replace(holds={"1": FENCE - 1})
    assert told([stale, blocked(2, 1)]) == {}


def test_a_row_lock_keeps_only_where_no_lease_is() -> None:
    row = blocked(1, 2)._replace(holds={"1": None})
    assert told([row, blocked(2, 1)]) == {}
    assert told([row, blocked(2, 1)._replace(fence=None)]) != {}


@given(
    waits=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=10, max_size=10),
    names=st.permutations(range(10)),
)
def test_each_cycle_has_one_victim(waits: list[tuple[int, int]], names: list[int]) -> None:
    """Each waits for one, so the cycles are apart, and walking on from anybody ends in one."""
    waiters = [
        blocked(number, wants, came)
        for number, (wants, came) in zip(names, waits, strict=True)
        if number != wants
    ]
    wanted = {one.id: one.name for one in waiters}
    cycles = set()
    for id in wanted:
        for _ in waiters:
            id = wanted.get(id, id)
        cycle = {id}
        while (id := wanted.get(id, id)) not in cycle:
            cycle.add(id)
        if len(cycle) > 1:
            cycles.add(frozenset(cycle))
    found = told(waiters)
    assert {frozenset(cycle) for cycle in found.values()} == cycles
    assert len(found) == len(cycles)
