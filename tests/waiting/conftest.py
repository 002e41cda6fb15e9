"""Waiters that do not look: only a call can wake them, so what is never called hangs its test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dblock import Lease, Locks, RetryPolicy
from dblock.dialects.tickets import TICKET
from tests.conftest import Database, NewDatabase
from tests.lending import Lender
from tests.patience import NEVER
from tests.servers import FAMILY, execute
from tests.support import SECONDS, eventually
from tests.worlds.behind import SomeLocks, timed
from tests.worlds.portal import WORLDS
from tests.worlds.world import World

if TYPE_CHECKING:
    from tests.waiting.user_lock import WatchedUserLock
    from tests.waiting.watching import Watched

NAME = "report"
AGES = 10 * SECONDS  # a TTL that ends no wait here
# Of this database: another run of the tests may have its own on the same server.
LISTENERS = """SELECT pid FROM pg_stat_activity
    WHERE left(query, 6) = 'LISTEN' AND datname = current_database()"""


def lease(
    locks: Locks, wait: float = SECONDS, *, fair: bool = False, retry: RetryPolicy | None = None
) -> Lease:
    return locks.lease(NAME, ttl=AGES, wait=wait, fair=fair, retry=retry)


def take_turn(
    locks: Locks,
    turns: list[int],
    number: int,
    *,
    fair: bool = False,
    retry: RetryPolicy | None = None,
) -> None:
    with lease(locks, fair=fair, retry=retry):
        turns.append(number)


@dataclass(frozen=True)
class Entry:
    """What stands in the queue for one waiter, on PostgreSQL."""

    text: str

    @property
    def ticket(self) -> str:
        return self.text[:TICKET]

    @property
    def token(self) -> str:
        return self.text[TICKET:][:32]

    @property
    def owner(self) -> str:
        return self.text[TICKET:][36:]


@dataclass
class Queue:
    """The queue for :data:`NAME`, as it stands in the database."""

    db: Database
    stack: ExitStack
    times: dict[str, float]

    def locks(self) -> Locks:
        """Locks as another program has them, with a listener of their own."""
        return self.stack.enter_context(self.timed(Locks(self.db.url)))

    def timed(self, locks: SomeLocks) -> SomeLocks:
        """Let other Locks have the times of this test too."""
        return timed(locks, **self.times)

    @property
    def tickets(self) -> list[str]:
        return self._tickets(NAME)

    def _tickets(self, name: str) -> list[str]:
        rows = execute(self.db.url, f"SELECT waiters FROM dblock_lock WHERE lock_name = '{name}'")
        queue = rows[0][0] if rows else None
        return queue.split(",") if isinstance(queue, str) else list(queue or [])

    def put(self, ticket: str) -> None:
        """Let one stand in it alone, who is not there any more."""
        queue = f"ARRAY['{ticket}']" if self.db.kind == "postgresql" else f"'{ticket}'"
        execute(self.db.url, f"UPDATE dblock_lock SET waiters = {queue}")

    def wait_for(self, length: int, *, name: str = NAME) -> None:
        """Wait until so many stand in it."""
        eventually(lambda: len(self._tickets(name)) == length)


@pytest.fixture
def queue(new_database: NewDatabase, times: dict[str, float]) -> Iterator[Queue]:
    with ExitStack() as stack:
        yield Queue(new_database("postgresql", migrated=True), stack, times)


@pytest.fixture(params=["pgbouncer", *FAMILY, "sqlite"])
def uncalled(
    request: pytest.FixtureRequest, new_database: NewDatabase, times: dict[str, float]
) -> Iterator[Queue]:
    """Where nobody can be called, and whoever waits has to look."""
    with ExitStack() as stack:
        yield Queue(new_database(request.param, migrated=True), stack, times)


@pytest.fixture
def only_calls(times: dict[str, float]) -> None:
    """Nobody looks before it is called."""
    times.update(poll=NEVER, poll_max=NEVER)


@pytest.fixture
def in_one_piece(times: dict[str, float]) -> None:
    """Nobody breaks off a wait to be seen waiting, nor to wait in the server again."""
    times.update(visible_after=NEVER, server_wait=SECONDS / 2)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """That of threads, unless a test says otherwise."""
    with WORLDS[getattr(request, "param", "threads")]() as made:
        yield made


@pytest.fixture
def watched(new_database: NewDatabase, times: dict[str, float], world: World) -> Iterator[Watched]:
    from tests.waiting.watching import Watched  # late: it is a Queue

    db = new_database("postgresql", migrated=True)
    execute(db.url, f"INSERT INTO dblock_lock (lock_name, fence) VALUES ('{NAME}', 0)")
    with ExitStack() as stack:
        yield Watched(db, stack, times, world)


@pytest.fixture(params=FAMILY)
def user_lock(
    request: pytest.FixtureRequest, lender: Lender, times: dict[str, float], world: World
) -> Iterator[WatchedUserLock]:
    """That of a name in a database of MariaDB's family which others have used before, and will."""
    from tests.waiting.user_lock import WatchedUserLock

    with lender.lend(request.param) as db, ExitStack() as stack:
        made = WatchedUserLock(db, stack, times, world)
        made.create()
        yield made
