"""Ctrl-C in the middle of each statement: before it is sent, or when its reply is on its way.

Whatever was interrupted, the name is free for others then, or the hold is still its holder's to
release; and no connection in an unknown state is used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection

from dblock import Locks, Timeouts
from dblock.dialects.query import Query
from dblock.dialects.sqlite.adapter import SQLite3
from dblock.io.connecting import Connector, OwnConnection
from dblock.io.connections import Connections
from dblock.io.runtime import Runtime
from dblock.io.sqlalchemy_transaction import BorrowedTransaction
from dblock.protocol.steps import Reply
from tests.conftest import Database
from tests.support import LONG, SECONDS, interrupted

MOST = 20  # statements; no operation here has as many


class Interrupt:
    """Presses Ctrl-C at the n-th statement of dblock's, before or after the server ran it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._own, self._borrowed = Connections.execute, BorrowedTransaction.execute
        self._countdown, self._after = 0, False
        self.connection: OwnConnection | None = None
        patch.setattr(Connections, "execute", lambda of, *args, **how: self._on(of, *args, **how))
        patch.setattr(BorrowedTransaction, "execute", lambda on, query: self._in(on, query))

    def at(self, number: int, *, after: bool) -> None:
        self._countdown, self._after, self.connection = number, after, None

    @property
    def pressed(self) -> bool:
        return self._countdown == 0

    def stop(self) -> None:
        self._countdown = 0

    def _on(self, of: Connections, connection: OwnConnection, *args: Any, **how: Any) -> Reply[Any]:
        return self._press(lambda: self._own(of, connection, *args, **how), connection)

    def _in(self, transaction: BorrowedTransaction, query: Query[Any]) -> Reply[Any]:
        return self._press(lambda: self._borrowed(transaction, query), None)

    def _press(self, run: Callable[[], Reply[Any]], connection: OwnConnection | None) -> Reply[Any]:
        if self._countdown != 1:
            self._countdown = max(0, self._countdown - 1)
            return run()
        self._countdown, self.connection = 0, connection
        if self._after:
            run()
        raise KeyboardInterrupt


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    return Interrupt(monkeypatch)


def each(
    interrupt: Interrupt,
    locks: Locks,
    operation: Callable[[], Callable[[], object]],
    undo: Callable[[], object] = lambda: None,
) -> Iterator[bool]:
    """Interrupt an operation at each of its statements in turn, first before and then after it.

    Yield each time whether it was after. ``operation`` prepares and returns what is interrupted;
    ``undo`` is for when it was not.
    """
    for after in (False, True):
        for number in range(1, MOST):
            call = operation()
            interrupt.at(number, after=after)
            try:
                call()
            except KeyboardInterrupt:
                broken = interrupt.connection
                for pool in (locks._database.connections, locks._database.holders):
                    assert all(kept is not broken for kept in pool._idle)
                yield after
            else:
                assert not interrupt.pressed, "the interrupt was swallowed"
                interrupt.stop()
                undo()
                break
        else:
            pytest.fail("it never came to an end")


def test_acquire(locks: Locks, others: Locks, interrupt: Interrupt) -> None:
    lease = locks.lease("report", ttl=LONG)
    acquire = partial(lease.acquire, timeout=LONG)
    seen = 0
    for _ in each(interrupt, locks, lambda: acquire, lease.release):
        seen += 1
        assert not lease.held
        with others.lease("report", ttl=LONG, wait=0):
            pass
    assert seen >= 2


def test_attach(locks: Locks, others: Locks, interrupt: Interrupt) -> None:
    """It was not attached, and can be yet; or it is free."""
    text = ""

    def detached() -> Callable[[], object]:
        nonlocal text
        with locks.lease("report", ttl=LONG, wait=0) as lease:
            text = lease.detach()
        return lambda: stack.enter_context(locks.attach(text, ttl=LONG))

    for after in (False, True):
        with ExitStack() as stack:
            for number in range(1, MOST):
                call = detached()
                interrupt.at(number, after=after)
                try:
                    call()
                except KeyboardInterrupt:
                    if others.show("report").held:
                        with others.attach(text, ttl=LONG):
                            pass
                else:
                    interrupt.stop()
                    break
            else:
                pytest.fail("it never came to an end")
        assert not others.show("report").held


def test_a_refused_acquire(locks: Locks, others: Locks, interrupt: Interrupt) -> None:
    lease = locks.lease("report", ttl=LONG)
    with others.lease("report", ttl=LONG) as holder:
        for _ in each(interrupt, locks, lambda: partial(lease.acquire, False)):
            assert not lease.held
            holder.check()
            assert others.show("report").fence == holder.fence


def test_renew(locks: Locks, others: Locks, interrupt: Interrupt) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    for _ in each(interrupt, locks, lambda: lease.renew):
        assert lease.held
        assert others.show("report").fence == lease.fence
    lease.release()
    assert not others.show("report").held


def test_release(locks: Locks, others: Locks, interrupt: Interrupt) -> None:
    lease = locks.lease("report", ttl=LONG)

    def acquired() -> Callable[[], object]:
        assert lease.acquire(blocking=False)
        return lease.release

    for after in each(interrupt, locks, acquired):
        assert not lease.held  # its holder has let go of it
        if after:  # it had been done
            with others.lease("report", ttl=LONG, wait=0):
                pass
        else:
            lease.release()  # for which it is still there
        assert not others.show("report").held


def test_guard(db: Database, locks: Locks, others: Locks, interrupt: Interrupt) -> None:
    engine = create_engine(db.url)
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    connections: list[Connection] = []

    def guarded() -> Callable[[], object]:
        connections.append(connection := engine.connect())
        return lambda: lease.guard(connection).__enter__()

    def close() -> None:
        connections.pop().close()

    for _ in each(interrupt, locks, guarded, close):
        close()
        assert lease.held
        lease.renew()  # nothing is in its way
    lease.release()
    with others.row("report", wait=0):
        pass
    engine.dispose()


def test_row(locks: Locks, others: Locks, interrupt: Interrupt) -> None:
    row = locks.row("order", wait=LONG)
    for _ in each(interrupt, locks, lambda: row.acquire, row.release):
        assert not row.held
        with others.row("order", wait=LONG):
            pass


def test_the_end_of_a_row_lock(locks: Locks, others: Locks, interrupt: Interrupt) -> None:
    row = locks.row("order", wait=LONG)

    def acquired() -> Callable[[], object]:
        assert row.acquire()
        return row.release

    for _ in each(interrupt, locks, acquired):
        assert not row.held
        with others.row("order", wait=LONG):
            pass


def test_a_row_lock_in_a_transaction(
    db: Database, locks: Locks, others: Locks, interrupt: Interrupt
) -> None:
    engine = create_engine(db.url)
    connections: list[Connection] = []

    def borrowed() -> Callable[[], object]:
        connections.append(connection := engine.connect())
        return locks.row("order", on=connection, wait=LONG).acquire

    def close() -> None:
        connections.pop().close()

    for _ in each(interrupt, locks, borrowed, close):
        close()
        with others.row("order", wait=LONG):
            pass
    engine.dispose()


def test_its_turn_is_kept_from_nobody() -> None:
    """Ctrl-C anywhere in the wait for one of the connections: the others go on."""
    engine = create_engine("sqlite://", connect_args={"check_same_thread": False})
    for number in range(1, 200):
        connections = Connections(
            Connector(engine, SQLite3(Timeouts())), limit=2, runtime=Runtime()
        )
        connections.give(connections.take())
        if not interrupted(connections.take, number):
            return
        other = threading.Thread(target=connections.take, daemon=True)
        other.start()
        other.join(SECONDS)
        assert not other.is_alive()
    pytest.fail("it never came to an end")
