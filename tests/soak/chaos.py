"""What workers do where anything may happen: take leases, pause too long, write, and die."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from unittest import mock

from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from dblock import (
    Conflict,
    DeadlockDetected,
    LockLost,
    Locks,
    NotAcquired,
    OutcomeUnknown,
    Unavailable,
)
from dblock.io.runtime import Runtime

from . import ledger
from .history import Operation, Recorder
from .plan import Plan
from .recorded import HeldLease, acquire, said
from .role import Role

#: What a transaction may end with: dblock's errors, and the driver's own at the user's statements.
FAILURES = (
    LockLost,
    NotAcquired,
    Conflict,
    DeadlockDetected,
    Unavailable,
    OutcomeUnknown,
    DBAPIError,
)
#: A transaction of the user's: it is given its session, its id, and what commits it now.
Write = Callable[[Session, str, Callable[[], None]], None]

WILD = 0.1  # the share of the sections that take too long, or do not end


class Chaos(Role):
    """Runs sections: acquire, some steps, the end. Each with an outcome of its own."""

    def __init__(self, plan: Plan, recorder: Recorder, locks: Locks) -> None:
        super().__init__(plan, recorder, locks)
        self._left = False
        postgresql = plan.url.startswith("postgresql")
        timeouts = {"connect_timeout": 2} if postgresql else {"connect_timeout": 2} | _TIMEOUTS
        self._engine = create_engine(
            plan.url, pool_size=1, pool_pre_ping=True, connect_args=timeouts
        )

    def section(self) -> None:
        chance, ttl = self._chance, self._plan.ttl
        if self._left:
            # The thread's own lease is no longer its own when its handle is gone, and an error's
            # traceback may keep that for a while.
            gc.collect()
            self._left = False
        name = chance.choice(self._plan.names)
        renewing = chance.random() < 0.3
        wait = 0.0 if chance.random() < 0.3 else chance.uniform(0.2, 3) * ttl
        lease = self._locks.lease(name, ttl=ttl, wait=wait, renew=renewing)
        hold = acquire(self._recorder, lease, renewing=renewing)
        if hold is None:
            time.sleep(chance.uniform(0, 0.05) * ttl)
            return
        wild = chance.random() < WILD
        for _ in range(chance.randrange(1, 4)):
            if wild and chance.random() < 0.7:  # too long for the lease, if nobody renews it
                paused = chance.uniform(1.05, 1.8) * ttl
                time.sleep(paused)
                if (
                    not renewing
                    and chance.random() < 0.7
                    and not self._write(hold, wild=True, late=paused)
                ):
                    break
            else:
                time.sleep(chance.uniform(0, 0.01) * ttl)
            hold.look()
            if chance.random() < 0.2:
                hold.renew()
            if chance.random() < 0.8 and not self._write(hold, wild=wild):
                break
        self._end(hold, wild=wild, renewing=renewing)

    # --- the operations ----------------------------------------------------------------------

    def _write(self, hold: HeldLease, *, wild: bool, late: float = 0.0) -> bool:
        """Write under the guard; ``late`` as a holder that does not know how long it has slept.

        Return whether the outcome is known. If not, the server may commit it yet, and no guard
        keeps it apart from the holder's own next write: the next grant does.
        """
        chance, guarded = self._chance, self._plan.guarded

        def write(session: Session, id: str, commit: Callable[[], None]) -> None:
            if not guarded:
                ledger.write(session, id, hold.name, hold.fence)
                return
            with slow_clock(late), hold.lease.guard(session) as fence:
                ledger.write(session, id, hold.name, fence)
                if wild and chance.random() < 0.3:  # a takeover has to wait for this transaction
                    time.sleep(chance.uniform(0.5, 1.5) * self._plan.ttl)
                if chance.random() < 0.5:
                    commit()

        return self._transact(hold.begin("write", guarded=guarded, late=late), write)

    def _transact(self, operation: Operation, write: Write) -> bool:
        """Write in a transaction, which is committed in the end if it is not yet; return whether
        the outcome is known."""
        committing = False

        def commit() -> None:
            nonlocal committing
            if not committing:
                operation.tell("commit")
                committing = True
                session.commit()

        try:
            with Session(self._engine) as session:
                write(session, f"{self._recorder.process}:{operation.op}", commit)
                commit()
        except FAILURES as error:
            undone = not committing or is_undone(error)
            operation.tell("failed" if undone else "unknown", **said(error))
            return undone
        except Exception:
            operation.tell("error", error=traceback.format_exc())
            return False
        operation.tell("ok")
        return True

    def _end(self, hold: HeldLease, *, wild: bool, renewing: bool) -> None:
        draw = self._chance.random()
        if wild and draw < 0.15:
            os.kill(os.getpid(), signal.SIGKILL)
        elif wild and draw < 0.4 and not renewing:
            self._left = True
            return  # it runs out by itself
        elif wild and draw < 0.6:
            time.sleep(self._chance.uniform(0.9, 1.5) * self._plan.ttl)
        if not hold.release():
            hold.release()


def is_undone(error: Exception) -> bool:
    """Whether a commit that failed is certainly none: another node of a cluster has been faster."""
    return (
        isinstance(error, DBAPIError) and error.orig is not None and error.orig.args[:1] == (1213,)
    )


@contextlib.contextmanager
def slow_clock(late: float) -> Iterator[None]:
    """dblock's clock is behind: the holder still believes, only the database can refuse it."""
    real = Runtime.now

    def behind() -> float:
        return real() - late

    with mock.patch.object(Runtime, "now", staticmethod(behind)):
        yield


# PyMySQL's; of psycopg the nemesis takes care, by cutting what it has kept silent.
_TIMEOUTS = {"read_timeout": 5, "write_timeout": 5}
