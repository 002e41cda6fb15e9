"""A lock cannot leak through a fork, a garbage collection or a pool (promise 9)."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
import textwrap
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.pool import QueuePool

from dblock import Locks, NotAcquired, NotHeld, Unavailable
from dblock.dialects.sqlite.adapter import _under_way
from tests.conftest import Database
from tests.support import SECONDS, Threads, blocked, eventually

ROOT = Path(__file__).parents[2]
LONG = 600.0
T = TypeVar("T")


# --- fork --------------------------------------------------------------------------------------


def in_child(function: Callable[[], T]) -> T:
    """What the function returns in a forked child; what fails there fails here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            said: tuple[bool, Any] = True, function()
        except BaseException:
            said = False, traceback.format_exc()
        gc.collect()
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(said, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        fine, outcome = pickle.load(pipe)
    os.waitpid(child, 0)
    assert fine, outcome
    value: T = outcome
    return value


def test_a_forked_child_does_not_hold_its_parents_lease(locks: Locks, others: Locks) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()

    def child() -> list[object]:
        said: list[object] = [lease.held, lease.remaining]
        for call in (lease.release, lease.check, lease.renew, lambda: lease.fence):
            with pytest.raises(NotHeld, match="parent"):
                call()
        # It is in the way like anybody's, and no wait of this process for itself.
        said.append(lease.acquire(blocking=False))
        return said

    assert in_child(child) == [False, 0.0, False]
    assert lease.held
    lease.renew()
    assert others.show("report").held
    lease.release()
    assert not others.show("report").held


def test_a_forked_child_does_not_share_its_parents_lease(locks: Locks, others: Locks) -> None:
    """Who reads in a child has a share of its own, and its end is not the parent's."""
    reader = locks.shared("report", ttl=LONG)
    assert reader.acquire()

    def child() -> bool:
        assert not reader.held
        with pytest.raises(NotHeld, match="parent"):
            reader.release()
        with locks.shared("report", ttl=LONG) as own:
            assert others.show("report").readers == 2
            return own.held

    assert in_child(child)
    reader.renew()
    assert others.show("report").readers == 1
    assert not others.lease("report", ttl=LONG).acquire(blocking=False)
    reader.release()
    assert not others.show("report").held


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_child_that_cannot_use_sqlite_is_told(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    """A thread of its parent was in a call of SQLite's, and never goes on in the child."""

    def child() -> str:
        for attempt in (lambda: locks.lease("free", wait=0).acquire(), others.list):
            with pytest.raises(Unavailable, match="Fork before you start threads") as caught:
                attempt()
        return str(caught.value)

    row = locks.row("order")
    with blocked(engine, locks, "order"):
        waiting = threads.start(row.acquire, timeout=LONG)
        eventually(lambda: bool(_under_way))
        assert "SQLite cannot be used" in in_child(child)
    assert waiting.result(SECONDS)
    row.release()
    assert in_child(lambda: locks.lease("free", wait=0).acquire())


def test_a_forked_child_takes_locks_of_its_own(locks: Locks, others: Locks) -> None:
    with locks.lease("parent", ttl=LONG) as mine:

        def child() -> bool:
            with locks.lease("child", ttl=LONG) as lease, locks.row("child's row"):
                return lease.held and not mine.held

        assert in_child(child)
        mine.renew()  # on the connection that the child had a copy of
        with locks.row("parent's row"):
            pass
        assert not others.show("child").held


def test_a_forked_child_does_not_free_its_parents_row(locks: Locks, others: Locks) -> None:
    row: Any = locks.row("order")
    assert row.acquire()

    def child() -> bool:
        nonlocal row
        held: bool = row.held
        with pytest.raises(NotHeld, match="parent"):
            row.release()
        row = None
        gc.collect()
        return held

    assert in_child(child) is False
    row.check()
    assert not others.row("order").acquire(blocking=False)
    row.release()
    with others.row("order", wait=0):
        pass


# A child that ends as an interpreter does, which closes all it can reach.
FORK_AND_END = """
    import os, sys
    from dblock import Locks

    locks = Locks(sys.argv[1])
    lease, row = locks.lease("lease", ttl=600), locks.row("row")
    assert lease.acquire() and row.acquire()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    row.check()
    with Locks(sys.argv[1]) as others:
        assert not others.row("row").acquire(blocking=False)
    row.release()
    lease.release()
"""


def test_a_forked_childs_end_closes_nothing_of_its_parents(db: Database) -> None:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORK_AND_END), db.url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


# --- garbage -----------------------------------------------------------------------------------


def test_a_row_lock_that_is_dropped_is_free(locks: Locks, others: Locks) -> None:
    row = locks.row("order")
    assert row.acquire()
    before = len(locks._database.holders._idle)
    gone = weakref.ref(row)
    held = [row]
    del row
    with pytest.warns(ResourceWarning, match="garbage-collected"):
        held.clear()  # and with it the last reference
    assert gone() is None
    assert len(locks._database.holders._idle) == before, "its connection is used again"
    with others.row("order", wait=30):
        pass
    with locks.row("order", wait=30):
        pass


def test_a_dropped_row_lock_is_free_where_warnings_are_errors(
    locks: Locks, others: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: the warning that fails is in nobody's way, and no garbage collection is needed."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: told.append(type(about.exc_value)))
    held = [locks.row("order")]
    assert held[0].acquire()
    with without_collections(), warnings.catch_warnings():
        warnings.simplefilter("error")
        told.clear()
        held.clear()
        assert told == [ResourceWarning]
        with others.row("order", wait=30):
            pass


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# --- pool --------------------------------------------------------------------------------------


def test_the_pool_of_a_lent_engine_is_left_alone(db: Database, others: Locks) -> None:
    engine = create_engine(db.url, poolclass=QueuePool, pool_size=1, max_overflow=0)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    before = pool.status()
    with Locks(engine) as locks:
        with engine.connect():  # the only one there is, and in use
            with locks.lease("report"):
                pass
            with locks.row("order"):
                pass
        with locks.lease("report"), others_refused(others, "report"):
            assert pool.checkedout() == 0
        with locks.row("order"), others_refused(others, "order"):
            assert pool.checkedout() == 0
        with others.lease("busy"):
            for strategy in (locks.lease, locks.row):
                with pytest.raises(NotAcquired):
                    strategy("busy", wait=0).__enter__()
                assert pool.checkedout() == 0
    assert engine.pool is pool
    assert pool.status() == before
    engine.dispose()


class others_refused:  # noqa: N801 - reads as the function it is
    """The name is taken while this lasts, and free again when it has ended in vain."""

    def __init__(self, others: Locks, name: str) -> None:
        self._others, self._name = others, name

    def __enter__(self) -> None:
        assert not self._others.lease(self._name).acquire(blocking=False)

    def __exit__(self, *error: object) -> None:
        pass


def test_no_lock_is_left_after_not_acquired(locks: Locks, others: Locks) -> None:
    holder = others.lease("busy", ttl=LONG)
    assert holder.acquire()
    for lock in (locks.lease("busy", wait=0.05), locks.row("busy", wait=0.05)):
        with pytest.raises(NotAcquired), lock:
            pytest.fail("the body was run")
        assert not lock.held
    holder.release()
    for _ in range(2):
        with others.row("busy", wait=0):
            pass
        with others.lease("busy", wait=0):
            pass


# --- other processes ---------------------------------------------------------------------------


def test_nothing_of_a_process_is_sent_to_another(locks: Locks) -> None:
    for thing in (locks, locks.lease("report"), locks.row("order"), locks.all(locks.row("order"))):
        with pytest.raises(TypeError, match=r"[Mm]ake Locks there, from the URL"):
            pickle.dumps(thing)
