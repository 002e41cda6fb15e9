"""An acquire whose caller has nearly used up its stack: it takes the lease, or leaves none."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from dblock import Locks
from dblock.aio import AsyncLease, AsyncLocks
from dblock.handles.base import Handle
from tests.aio.support import async_url
from tests.conftest import KINDS, Database, lent
from tests.support import LONG

pytestmark = pytest.mark.parametrize("db", KINDS, indirect=True)
db = pytest.fixture(lent)

#: So many calls are left: too few for anything, up to enough for all of it.
LEFT = range(4, 160)


def down(calls: int, do: Callable[[], Any]) -> Any:
    return do() if calls <= 0 else down(calls - 1, do)


def with_left(left: int, do: Callable[[], Any]) -> Any:
    """Call a function when so many calls are left."""
    return down(sys.getrecursionlimit() - len(inspect.stack(0)) - left, do)


@pytest.fixture(autouse=True)
def ignored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ignore what could not begin, or end: generators, coroutines, connections half closed."""
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")
    yield
    gc.collect()  # or the collector would find them in another test, and fail that one


Make = Callable[[Locks, str], Handle]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda locks, name: locks.lease(name, ttl=LONG), "{}"),
        (lambda locks, name: locks.shared(name, ttl=LONG), "{}"),
        (lambda locks, name: locks.row(name), "{}"),
        (lambda locks, name: locks.semaphore(name, 1, ttl=LONG), "{}#1"),
    ],
    ids=["lease", "shared", "row", "semaphore"],
)
def test_acquire(db: Database, make: Make, name: str) -> None:
    outcomes = set()
    with Locks(db.locks_url) as locks, Locks(db.locks_url) as others:
        with locks.lease("before", ttl=LONG), others.lease("others", ttl=LONG):
            pass
        for left in LEFT:
            lock = make(locks, f"deep {left}")
            try:
                outcome = with_left(left, partial(lock.acquire, blocking=False))
            except RecursionError:
                outcome = None
            outcomes.add(outcome)
            found = name.format(f"deep {left}")
            free = others.lease(found, ttl=LONG).acquire(blocking=False)
            assert free is (outcome is None), left
            if outcome:
                lock.release()
    assert outcomes == {None, True}


def test_acquire_in_asyncio(db: Database) -> None:
    async def down(calls: int, lease: AsyncLease) -> bool:
        if calls <= 0:
            return await lease.acquire(blocking=False)
        return await down(calls - 1, lease)

    async def main() -> set[bool | None]:
        outcomes = set[bool | None]()
        url = async_url(db.locks_url)
        async with AsyncLocks(url) as locks, AsyncLocks(url) as others:
            async with locks.lease("before", ttl=LONG), others.lease("others", ttl=LONG):
                pass
            for left in LEFT:
                lease = locks.lease(f"deep {left}", ttl=LONG)
                calls = sys.getrecursionlimit() - len(inspect.stack(0)) - left
                outcome: bool | None
                try:
                    outcome = await down(calls, lease)
                except RecursionError:
                    outcome = None
                outcomes.add(outcome)
                free = await others.lease(lease.name, ttl=LONG).acquire(blocking=False)
                assert free is (outcome is None), left
                if outcome:
                    await lease.release()
        return outcomes

    assert asyncio.run(main()) == {None, True}
