"""A thread's transactions with a call that is made once, or with a gate: until it knows the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from greenlet import GreenletExit
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from dblock import (
    Conflict,
    DeadlockDetected,
    InProgress,
    KeyReused,
    Once,
    StaleFence,
    Unavailable,
)
from tests.simulation.effects import Made
from tests.simulation.lending import lent
from tests.simulation.loop import Violation
from tests.simulation.tables import EFFECTS, PASSED
from tests.simulation.thread import Thread

#: Seconds after which a whole transaction is tried again.
AGAIN = 0.3
#: For so many seconds a call is on record, where nothing else is said.
DAY = 86_400.0


@contextmanager
def calling(
    me: Thread,
    connection: Connection,
    key: str,
    wait: float | None = None,
    payload: object = None,
    keep: float = DAY,
) -> Iterator[Once]:
    """Make a call once in a transaction of the user's, as a with statement does."""
    call = me.locks.once(connection, key, fingerprint=payload, keep=keep, wait=wait)
    with lent(connection), me.calling(f"calling {key!r}", wait):
        call.__enter__()
    try:
        yield call
    except GreenletExit:
        raise
    except BaseException as error:
        with lent(connection):
            call.__exit__(type(error), error, error.__traceback__)
        raise
    with lent(connection):
        call.__exit__(None, None, None)


def act(
    me: Thread, connection: Connection, call: Once, payload: object = None, until: float = DAY
) -> None:
    """Do what the call is for, which takes a moment, unless it was done before."""
    if not call.replayed:
        result = me.ledger.effects.begin(Made(payload, me.ledger.store.clock(), until))
        values = {"idempotency_key": call.key, "result": result}
        connection.execute(EFFECTS.insert().inline(), values)
        me.work(0.05)
        call.result = result


def make(
    me: Thread,
    key: str,
    wait: float | None = None,
    payload: object = None,
    keep: float = DAY,
) -> None:
    """Make a call, and again with the same key until it is known what came of it."""
    while True:
        until = me.ledger.store.clock() + keep
        try:
            with (
                me.transaction() as connection,
                calling(me, connection, key, wait, payload, keep) as call,
            ):
                act(me, connection, call, payload, until)
        except KeyReused:
            me.note(f"has no call {key}")
            if not me.allowance.fails_over:
                me.ledger.effects.reused(me.name, key, payload)
            return
        except InProgress as error:
            if wait is None:
                raise Violation(f"{me.name} waits for {key!r} no longer: {error!r}") from error
            me.work(AGAIN)
        except (Conflict, DeadlockDetected, Unavailable, SQLAlchemyError) as error:
            _begin_again(me, error)
        else:
            break
    me.note(f"has called {key}: {call.result}")
    if not me.allowance.fails_over:
        me.ledger.effects.made(me.name, key, payload, call.result)


def write_behind(me: Thread, name: str, fence: int) -> None:
    """Pass a gate and write, and again until it is known what came of it."""
    while True:
        try:
            with me.transaction() as connection:
                with lent(connection):
                    me.client.locks.gate(connection, name, fence)
                me.work(0.05)
                connection.execute(PASSED.insert().inline(), {"name": name, "fence": fence})
        except StaleFence as stale:
            me.note(f"has not passed {name} with {fence}")
            if not me.allowance.fails_over:
                me.ledger.effects.stopped(me.name, name, fence, stale.newest)
            return
        except (Conflict, DeadlockDetected, Unavailable, SQLAlchemyError) as error:
            _begin_again(me, error)
        else:
            break
    me.note(f"has passed {name} with {fence}")
    if not me.allowance.fails_over:
        me.ledger.effects.let_through(me.name, name, fence)


def _begin_again(me: Thread, error: Exception) -> None:
    """Wait for the next try of a transaction that failed, if it may fail so."""
    store, allowance = me.ledger.store, me.allowance
    if isinstance(error, Conflict):
        may = store.snapshots
    elif isinstance(error, DeadlockDetected):
        # Of those who wait for a row that is rolled back, InnoDB may choose one to undo.
        may = store.database in ("mariadb", "mysql") and not allowance.quiet
    else:
        may = not allowance.answered
    if not may:
        raise Violation(f"{me.name} is told, without a reason: {error!r}") from error
    me.note("begins again")
    me.work(AGAIN)
