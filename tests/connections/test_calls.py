"""How many Python functions a lock calls that nobody else wants: a budget, which may shrink."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType

import pytest
from sqlalchemy.engine import Engine

import dblock
from dblock import Locks
from dblock.aio import AsyncLocks
from tests.aio.support import async_url
from tests.conftest import Database, lent
from tests.support import Threads

pytestmark = pytest.mark.parametrize("db", ["postgresql"], indirect=True)
db = pytest.fixture(lent)

# For one `with locks.lease(name): pass`. Of psycopg there is none: dblock speaks to libpq.
CALLS, CALLS_ASYNCIO = 100, 156
# For one turn, of a process that waits in the queue until another one's release grants it the name.
CALLS_TURN = 220
# For one row lock that begins a transaction of the user's.
CALLS_BORROWED = 71
# The asyncio of each version of Python calls its own functions as it likes, and so does SQLAlchemy.
HERE = str(Path(dblock.__file__).parent)
WARM, PAIRS, TURNS = 20, 2, 100
#: The quietest counts: something may happen meanwhile that is not part of a pair.
ROUNDS = 50


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the calls of functions that are written in Python, by file."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            calls[frame.f_code.co_filename] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def of_dblock(file: str) -> bool:
    return file.startswith(HERE) or file == "<string>"  # what a dataclass makes has no file


def per_pair(calls: Counter[str], whose: Callable[[str], bool]) -> float:
    return sum(often for file, often in calls.items() if whose(file)) / PAIRS


def test_a_pair(db: Database) -> None:
    with Locks(db.url) as locks:

        def pair() -> None:
            with locks.lease("report"):
                pass

        calls = fewest(pair)
    assert per_pair(calls, lambda file: "psycopg" in file) == 0
    assert per_pair(calls, lambda file: file != __file__) <= CALLS


def test_a_turn(db: Database, threads: Threads) -> None:
    """Two ``Locks`` pass the name on to each other; a release notifies the waiter."""
    ended = Event()
    with Locks(db.url) as locks, Locks(db.url) as others:

        def rival() -> None:
            while not ended.is_set():
                with others.lease("report"):
                    pass

        def turn() -> Counter[str]:
            notified = notifier.calls
            with counting() as calls, locks.lease("report"):
                pass
            return calls if notifier.calls > notified else Counter()

        notifier = locks._database.contenders.local_queue.notifier
        threads.start(rival)
        turns = [turn() for _ in range(TURNS)]
        ended.set()
        threads.join()
    assert min(calls.total() for calls in turns if calls) <= CALLS_TURN


def test_a_row_lock_in_the_users_transaction(db: Database, engine: Engine) -> None:
    with Locks(db.url) as locks, engine.connect() as connection:

        def pair() -> None:
            locks.row("report", on=connection).acquire()
            connection.rollback()

        assert per_pair(fewest(pair), of_dblock) <= CALLS_BORROWED


def fewest(pair: Callable[[], None]) -> Counter[str]:
    """Count the calls of some pairs, as often as it takes for nothing else to be among them."""
    for _ in range(WARM):  # prepared by then
        pair()
    rounds = []
    for _ in range(ROUNDS):
        with counting() as calls:
            for _ in range(PAIRS):
                pair()
        rounds.append(calls)
    return min(rounds, key=Counter.total)


def test_a_pair_in_asyncio(db: Database) -> None:
    async def pairs(locks: AsyncLocks, often: int) -> None:
        for _ in range(often):
            async with locks.lease("report"):
                pass

    async def main() -> Counter[str]:
        async with AsyncLocks(async_url(db.url)) as locks:
            await pairs(locks, WARM)
            rounds = []
            for _ in range(ROUNDS):
                with counting() as calls:
                    await pairs(locks, PAIRS)
                rounds.append(calls)
            return min(rounds, key=Counter.total)

    calls = asyncio.run(main())
    assert per_pair(calls, lambda file: "psycopg" in file) == 0
    assert per_pair(calls, of_dblock) <= CALLS_ASYNCIO
