"""A caller that is refused, and may wait, joins the name's queue next. It does not look before: the
statement that joins says as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from dblock import Locks, NotAcquired
from tests.conftest import NewDatabase
from tests.servers import FAMILY
from tests.support import MOMENT, SECONDS, Threads
from tests.waiting.conftest import NAME, Queue, lease
from tests.waiting.watching import Statements
from tests.worlds.portal import WORLDS
from tests.worlds.world import World

#: What a waiter may send besides, if it waits for long enough: it lets itself be seen.
SEEN = frozenset({"register", "sweep", "unregister"})


@dataclass
class Contested:
    """A name that one has, and another wants, each with Locks of its own in the same world."""

    queue: Queue
    world: World
    fair: bool

    def locks(self) -> Locks:
        locks = self.world.locks(self.queue.db.url)
        return self.queue.stack.enter_context(self.queue.timed(locks))


@pytest.fixture(params=list(WORLDS))
def contested(
    request: pytest.FixtureRequest, kind: str, fair: bool, new_database: NewDatabase
) -> Iterator[Contested]:
    with WORLDS[request.param]() as world, ExitStack() as stack:
        db = new_database(kind, migrated=True)
        yield Contested(Queue(db, stack, {}), world, fair)


# Without fair=True a waiter on MariaDB waits in the server, and one on SQLite looks now and then.
joins_at_once = pytest.mark.parametrize(
    ("kind", "fair"),
    [("postgresql", False), ("postgresql", True), *((kind, True) for kind in (*FAMILY, "sqlite"))],
)


@joins_at_once
def test_a_refused_caller_joins_the_queue_without_a_look(
    contested: Contested, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, locks = lease(contested.locks()), contested.locks()
    waiter = lease(locks, fair=contested.fair)
    assert waiter.acquire()  # with connections made
    waiter.release()
    assert holder.acquire()
    assert not waiter.acquire(timeout=MOMENT)  # and one to listen with
    statements = Statements(locks._database, monkeypatch)
    acquired: Future[bool] = threads.start(waiter.acquire)
    contested.queue.wait_for(1)
    asked = [kind for kind in statements.kinds if kind not in SEEN]
    holder.release()
    assert acquired.result(SECONDS)
    threads.run(waiter.release)
    assert asked[:2] == ["grant", "join"]


@joins_at_once
def test_a_waiter_that_gives_up_says_who_holds_the_name(contested: Contested) -> None:
    """It has not looked before it joined."""
    holder = contested.locks().lease(NAME, label="the nightly report")
    assert holder.acquire()
    waiter = lease(contested.locks(), MOMENT, fair=contested.fair)
    with pytest.raises(NotAcquired, match="the nightly report") as refused:
        waiter.__enter__()
    assert refused.value.holder is not None
    assert contested.queue.tickets == []


@joins_at_once
def test_a_wait_that_is_too_short_to_join_says_who_holds_the_name(contested: Contested) -> None:
    holder = contested.locks().lease(NAME, label="the nightly report")
    assert holder.acquire()
    waiter = lease(contested.locks(), 0.000001, fair=contested.fair)
    with pytest.raises(NotAcquired, match="the nightly report"):
        waiter.__enter__()
    assert contested.queue.tickets == []


@pytest.mark.parametrize(("kind", "fair"), [("pgbouncer", False), ("pgbouncer", True)])
def test_behind_a_pooler_a_refused_caller_looks_or_joins(
    contested: Contested, threads: Threads
) -> None:
    """Nobody can be told there."""
    holder = lease(contested.locks())
    assert holder.acquire()
    waiter = lease(contested.locks(), fair=contested.fair)
    acquired: Future[bool] = threads.start(waiter.acquire)
    contested.queue.wait_for(1)
    holder.release()
    assert acquired.result(SECONDS)
    threads.run(waiter.release)
