"""How many Python functions a lease calls that nobody else wants: a budget, which may shrink."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import dblock
from dblock import Locks
from dblock.aio import AsyncLocks
from tests.aio.support import async_url
from tests.conftest import Database, lent

pytestmark = pytest.mark.parametrize("db", ["postgresql"], indirect=True)
db = pytest.fixture(lent)

# For one `with locks.lease(name): pass`. Of psycopg there is none: dblock speaks to libpq.
CALLS, CALLS_ASYNCIO = 116, 174
# The asyncio of each version of Python calls its own functions as it likes, and so does SQLAlchemy.
HERE = str(Path(dblock.__file__).parent)
WARM, PAIRS = 20, 2
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


def per_pair(calls: Counter[str], whose: Callable[[str], bool]) -> float:
    return sum(often for file, often in calls.items() if whose(file)) / PAIRS


def test_a_pair(db: Database) -> None:
    with Locks(db.url) as locks:

        def pair() -> None:
            with locks.lease("report"):
                pass

        for _ in range(WARM):  # prepared by then
            pair()
        rounds = []
        for _ in range(ROUNDS):
            with counting() as calls:
                for _ in range(PAIRS):
                    pair()
            rounds.append(calls)
    calls = min(rounds, key=Counter.total)
    assert per_pair(calls, lambda file: "psycopg" in file) == 0
    assert per_pair(calls, lambda file: file != __file__) <= CALLS


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
    # What a dataclass makes has no file.
    own = per_pair(calls, lambda file: file.startswith(HERE) or file == "<string>")
    assert own <= CALLS_ASYNCIO
