"""Whether those who wait, and hold what others wait for, wait for one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple


class Blocked(NamedTuple):
    """One who waits for a name and holds others.

    ``fence`` is that of the lease that is on the name now, None where there is none. ``holds`` are
    the names held and the fences they were granted with, None for a row lock.
    """

    id: str
    name: str
    fence: int | None
    owner: str
    since: datetime
    holds: Mapping[str, int | None]


def find_cycle(blocked: Sequence[Blocked], victim: str) -> list[Blocked] | None:
    """Return a cycle in which ``victim`` came last, from it to the one who waits for it.

    Each cycle was closed by one who came last, so exactly one is told, whoever looks.

    What a waiter holds is what it wrote when it looked last. Of a lease that is not believed when
    another fence is on the name by now; and where a lease is, nobody has a row lock.
    """
    last = next((one for one in blocked if one.id == victim), None)
    if last is None:
        return None
    before = [one for one in blocked if _came(one) < _came(last)]
    ways: list[list[Blocked]] = [[last]]  # the shortest first
    seen = {victim}
    for way in ways:
        if len(way) > 1 and _keeps(last, way[-1]):
            return way
        for holder in _holders(way[-1], before):
            if holder.id not in seen:
                seen.add(holder.id)
                ways.append([*way, holder])
    return None


def _came(one: Blocked) -> tuple[datetime, str]:
    return one.since, one.id


def _holders(waiter: Blocked, others: Sequence[Blocked]) -> Iterator[Blocked]:
    return (other for other in others if _keeps(other, waiter))


def _keeps(holder: Blocked, waiter: Blocked) -> bool:
    """Whether ``holder`` has what ``waiter`` waits for."""
    return waiter.name in holder.holds and holder.holds[waiter.name] == waiter.fence
