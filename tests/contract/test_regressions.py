"""Faults that a review found, each kept from coming back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from sqlalchemy.engine import Connection, Engine

from dblock import DeadlockDetected, Locks, NotEnough, NotHeld, Timeouts, Unavailable
from dblock.io.driver import Driver
from dblock.protocol.steps import Execute
from dblock.schema import upgrade
from tests.conftest import NewDatabase
from tests.contract.conftest import NewLocks
from tests.contract.sessions import away
from tests.support import LONG, MOMENT, SECONDS, SHORT, Threads, eventually

POOL = 5  # the pooler's connections to the server


def test_together_does_not_begin_with_a_lease_that_ran_out(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    """The first was granted, ran out while the second was waited for, and was taken by another."""
    # Long enough for the second hold to be seen on a machine that stalls.
    first, second = locks.lease("a", ttl=8 * MOMENT, renew=False), locks.lease("b")
    in_the_way, rival = others.lease("b", ttl=LONG), others.lease("a", ttl=LONG)
    assert in_the_way.acquire()
    taking = threads.start(locks.all(first, second).acquire)
    eventually(lambda: locks.show("a").fence == 1)
    threads.run(rival.acquire)
    in_the_way.release()
    eventually(lambda: locks.show("b").fence == 2)
    assert not taking.done()
    rival.release()
    assert taking.result(SECONDS)
    assert locks.show("a").fence > 2
    assert locks.show("a").held


def test_a_release_that_failed_can_be_repeated(
    new_locks: NewLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = new_locks()
    lease = locks.lease("report", ttl=LONG)
    lease.acquire()
    with away(monkeypatch), pytest.raises(Unavailable):
        lease.release()
    assert not lease.held
    assert locks.show("report").held
    lease.release()
    assert not locks.show("report").held
    with pytest.raises(NotHeld):
        lease.release()


def test_a_file_that_is_busy_for_long_is_not_a_refusal(new_database: NewDatabase) -> None:
    """NotAcquired at the end of `with` would tell that its body never ran."""
    db = new_database("sqlite", migrated=True)
    engine = create_engine(db.url)
    with Locks(db.url, timeouts=Timeouts(query=0.1, socket=0.2)) as locks:
        lease = locks.lease("report", ttl=LONG)
        lease.acquire()
        with engine.connect() as writer:
            writer.exec_driver_sql("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="in use"):
                lease.release()
            writer.rollback()
        lease.release()
    engine.dispose()


def test_an_interrupted_renewal_to_less_is_believed_to_have_happened(
    locks: Locks, others: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = locks.lease("report", ttl=2 * LONG, renew=False)
    lease.acquire()
    run = Driver._run

    def interrupted(self: Driver, *args: Any, **kwargs: Any) -> None:
        run(self, *args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as keyboard:
        keyboard.setattr(Driver, "_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lease.renew(SHORT)
    assert lease.remaining <= SHORT
    assert others.lease("report", wait=LONG).acquire()
    assert not lease.held


def test_functions_that_return_before_their_body_runs(locks: Locks) -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def both() -> AsyncIterator[int]:
        yield 1

    for function in (coroutine, generator, both):
        with pytest.raises(TypeError, match="run unlocked"):
            locks.lease("report")(function)


def test_a_writer_that_would_wait_for_itself(locks: Locks, engine: Engine) -> None:
    """A guard makes the transaction the one writer, where there is only one."""
    lease = locks.lease("report", ttl=LONG)
    lease.acquire()
    with engine.connect() as connection:
        with lease.guard(connection):
            if locks._database.dialect.traits.one_writer:
                for act in (lease.renew, lease.release, locks.lease("another").acquire):
                    with pytest.raises(DeadlockDetected, match=r"one writer|everything"):
                        act()
            else:
                lease.renew()
                assert locks.lease("another").acquire()
        assert lease.held
        connection.commit()
    lease.renew()
    lease.release()


def test_what_is_left_is_told_as_it_is(locks: Locks, engine: Engine) -> None:
    """Under InnoDB's REPEATABLE READ a plain read is older than what the update has seen."""
    table = Table(
        "shelf", MetaData(), Column("id", Integer, primary_key=True), Column("stock", Integer)
    )
    table.metadata.create_all(engine)
    stock = locks.counter(table.c.stock, key=table.c.id)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, stock=5))
    with engine.connect() as old:
        if not locks._database.dialect.traits.one_writer:
            assert stock.value(old, 1) == 5
        with engine.begin() as connection:
            stock.take(connection, 1, 5)
        with pytest.raises(NotEnough, match="is 0") as caught:
            stock.take(old, 1, 3)
        assert caught.value.available == 0


def test_a_row_that_is_waited_for_is_left_to_its_leases_holder(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    lease = locks.lease("report", ttl=LONG)
    lease.acquire()
    ended = threading.Event()

    def want() -> int:
        tries = 0
        while not ended.is_set():
            tries += 1
            assert not others.row("report", wait=0.01).acquire()
        return tries

    wanting = threads.start(want)
    until = time.monotonic() + 1
    with contextlib.ExitStack() as stack:
        stack.callback(ended.set)
        while time.monotonic() < until:
            lease.renew()
    assert wanting.result(SECONDS) > 1
    lease.release()


def test_a_connection_that_breaks_at_every_grant_is_not_hammered(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dblock.protocol.faults import Fault, StatementError

    perform, sent = Driver._run, 0

    def breaking(self: Driver, step: Execute, *args: Any) -> object:
        nonlocal sent
        if step.command.word == "grant":
            sent += 1
            raise StatementError(Fault.DISCONNECTED, "as if")
        return perform(self, step, *args)

    monkeypatch.setattr(Driver, "_run", breaking)
    assert not locks.lease("report", wait=0).acquire()
    assert sent == 2  # a connection that had died idle is replaced, once


def test_statements_prepared_on_another_backend_of_the_pooler(new_database: NewDatabase) -> None:
    """What is prepared on one is not on the next, nor does a name mean the same there."""
    pooled = new_database("pgbouncer")
    direct = pooled.server.upstream.url_for(create_engine(pooled.url).url.database)  # type: ignore[union-attr]
    for prefix in ("one_", "two_"):
        upgrade(direct, prefix=prefix)
    engine = create_engine(pooled.url, pool_size=POOL, connect_args={"prepare_threshold": None})

    def pin(connection: Connection) -> int:
        pid: int = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        return pid

    with (
        contextlib.ExitStack() as stack,
        Locks(pooled.url, prefix="one_") as one,
        Locks(pooled.url, prefix="two_") as two,
    ):
        # Every backend is in somebody's transaction, but for the one that is to be used.
        connections = [stack.enter_context(engine.connect()) for _ in range(POOL)]
        pins = {pin(connection): connection for connection in connections}
        assert len(pins) == POOL
        here, there = list(pins)[:2]
        for locks, backend in ((one, here), (two, there)):
            pins[backend].rollback()
            for _ in range(8):  # often enough for psycopg to prepare
                with locks.lease("warm", ttl=LONG), locks.row("row"):
                    pass
            assert pin(pins[backend]) == backend
        pins[there].rollback()
        with one.row("row"):
            pass
        with one.lease("job", ttl=LONG):
            assert one.show("job").held
            assert not two.show("job").held
    engine.dispose()
