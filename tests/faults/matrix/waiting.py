"""The operations of those who wait, and of who passes a name on to one that does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import ClassVar

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from dblock import DBLockError
from tests.faults.matrix.operations import Operation, Ways
from tests.support import LONG, SECONDS, eventually
from tests.worlds.behind import timed

# What of a waiter may be found in the tables.
IN_QUEUE, ITS_ROW = "in the queue", "its row is there"
# Before it is seen waiting; and what is often enough for that, and to join.
VISIBLE_AFTER, TRIED = 0.3, 1.0
ROW = "SELECT waiters FROM dblock_lock WHERE lock_name = :name AND waiters IS NOT NULL"
SEEN = "SELECT id FROM dblock_waiter WHERE lock_name = :name"


class Waiting(Operation):
    """Another has the name, around the faulty way."""

    fair: ClassVar[bool] = False

    def __init__(self, ways: Ways) -> None:
        super().__init__(ways)
        soon = timed(ways.locks, visible_after=VISIBLE_AFTER)
        self.lease = soon.lease(self.lock, ttl=ways.ttl, renew=False, fair=self.fair)
        self.over = threading.Event()

    def prepare(self) -> None:
        self.ways.locks.list()
        self.other = self.ways.direct.lease(self.lock, ttl=LONG)
        assert self.other.acquire()

    def there(self, query: str) -> bool:
        """Whether a table has something of who waits for the name, read without dblock."""
        with self.ways.onlooker.connect() as connection:
            name = {"name": self.ways.direct._database.dialect.key(self.lock)}
            return connection.execute(text(query), name).first() is not None

    def seen(self) -> bool:
        """Whether it is seen waiting, and stands in the queue where a release looks for it."""
        queues = self.fair or self.ways.direct._database.dialect.traits.can_notify
        try:
            return self.there(SEEN) and (self.there(ROW) or not queues)
        except DBAPIError:  # the database is away
            return False

    def once_seen(self, do: Callable[[], None]) -> threading.Thread:
        """Do something when it is seen, as soon as the database is there for that."""

        def watch() -> None:
            while not self.over.wait(0.01):
                if self.seen() and not self.over.is_set():
                    with contextlib.suppress(DBLockError):
                        do()
                        return

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        return watching

    def found(self) -> str:
        """Whose the name is, and what is left of its waiters."""
        left = [IN_QUEUE] * self.there(ROW) + [ITS_ROW] * self.there(SEEN)
        return ", ".join([self.whose(), *left])

    def whose(self) -> str:
        row = self.row()
        assert row is not None
        if self.other.held and row.token == self.other.token:
            return "another's"
        if self.lease.held and row.token == self.lease.token:
            return f"held, fence {row.fence}"
        later = self.ways.direct.lease(self.lock, ttl=LONG)
        assert later.acquire(timeout=2 * self.ways.ttl)
        assert later.fence == row.fence + 1
        return "free" if row.token is None else "free within the TTL"


class Wait(Waiting):
    """Waits until it has the name, which is released once it is seen to wait."""

    name = "wait"

    def run(self) -> str:
        self.releasing = self.once_seen(self.other.release)
        try:
            assert self.lease.acquire()
        finally:
            self.over.set()
        return "acquired"

    def found(self) -> str:
        self.releasing.join(SECONDS)
        return super().found()


class WaitFairly(Wait):
    name = "wait (fair)"
    fair = True


class WaitInVain(Waiting):
    name = "wait (timeout)"

    def run(self) -> str:
        """Try for longer until it was seen to wait: a busy machine takes its time to join."""
        seen, tried = threading.Event(), TRIED
        self.once_seen(seen.set)
        try:
            while not self.lease.acquire(timeout=tried):
                if seen.is_set():
                    return "refused"
                tried *= 2
        finally:
            self.over.set()
        return "acquired"


class WaitFairlyInVain(WaitInVain):
    name = "wait (timeout, fair)"
    fair = True


class PassOn(Waiting):
    """Releases a name that another waits for, around the faulty way."""

    name = "release (waited for)"

    def prepare(self) -> None:
        assert self.lease.acquire()
        self.other = self.ways.direct.lease(self.lock, ttl=LONG, fair=self.fair)
        self.waiting = threading.Thread(target=self._wait, daemon=True)
        self.waiting.start()
        eventually(self.seen)

    def _wait(self) -> None:
        while True:
            with contextlib.suppress(DBLockError):  # as long as it is away
                assert self.other.acquire()
                return

    def run(self) -> str:
        self.lease.release()
        assert not self.lease.held
        return "released"

    def found(self) -> str:
        self.waiting.join(SECONDS)
        return super().found()

    def whose(self) -> str:
        row = self.row()
        assert row is not None
        assert row.token == self.other.token, "the next one has not got it"
        return f"the next one's, fence {row.fence}"


WAITING: dict[str, type[Operation]] = {
    kind.name: kind for kind in (Wait, WaitFairly, WaitInVain, WaitFairlyInVain, PassOn)
}
