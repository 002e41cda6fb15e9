"""Finding a deadlock: a cycle of waiters, each of which holds the name that the next waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple


class Blocked(NamedTuple):
    """A waiter that holds other names.

    ``fence`` is the fence of the name's present lease; None if the name has none. ``holds`` has the
    names that the waiter holds, with the fences of their grants; None for a row lock.
    """

    id: str
    name: str
    fence: int | None
    owner: str
    since: datetime
    holds: Mapping[str, int | None]


def find_cycle(blocked: Sequence[Blocked], victim: str) -> list[Blocked] | None:
    """Return a cycle in which ``victim`` began to wait last, from ``victim`` to the waiter that
    waits for it; None if there is none.

    The waiter that began last closed the cycle. So exactly one waiter of a cycle finds itself as
    the victim, in whatever order the waiters check.

    ``holds`` is as the waiter wrote it at its last check. A hold counts only if its fence is the
    fence of the name's present lease. A row lock counts only if the name has no lease.
    """
    last = next((one for one in blocked if one.id == victim), None)
    if last is None:
        return None
    before = [one for one in blocked if _came(one) < _came(last)]
    ways: list[list[Blocked]] = [[last]]  # the shortest paths first
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
    """Whether ``holder`` holds the name that ``waiter`` waits for."""
    return waiter.name in holder.holds and holder.holds[waiter.name] == waiter.fence
