"""A worker: takes leases, pauses too long, writes, dies; and writes down all of it."""

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from dblock import Conflict, Lease, LockLost, Locks, OutcomeUnknown, Timeouts, Unavailable, clock

from . import ledger
from .history import Operation, Recorder, now

TIMEOUTS = Timeouts(connect=1, query=1, socket=2)
WILD = 0.1  # the share of the sections that take too long, or do not end
STOP = "stop"  # the file in the history's directory that ends the workers
# Whether leases renew themselves where they are not told otherwise.
RENEWS = "renew" in inspect.signature(Locks.lease).parameters


@dataclass(frozen=True)
class Plan:
    """What a worker is to do."""

    url: str
    directory: Path
    names: tuple[str, ...]
    ttl: float
    seed: str
    guarded: bool


def work(plan: Plan, process: str) -> None:
    """Run one worker, until the file is there that stops it or whoever started it is gone."""
    parent = os.getppid()
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL)  # connections break, as they should
    recorder = Recorder(plan.directory, process)
    life = recorder.begin("worker", pid=os.getpid())
    try:
        with Locks(plan.url, timeouts=TIMEOUTS) as locks:
            worker = Worker(plan, recorder, locks)
            while os.getppid() == parent and not (plan.directory / STOP).exists():
                worker.section()
        life.tell("ok")
    except BaseException:
        life.tell("error", error=traceback.format_exc())


class Worker:
    """Runs sections: acquire, some steps, the end. Each with an outcome of its own."""

    def __init__(self, plan: Plan, recorder: Recorder, locks: Locks) -> None:
        self._plan, self._recorder, self._locks = plan, recorder, locks
        self._left = False
        self._chance = random.Random(f"{plan.seed}/{recorder.process}")
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
        renewing = RENEWS and chance.random() < 0.3
        wait = 0.0 if chance.random() < 0.3 else chance.uniform(0.2, 3) * ttl
        options: dict[str, Any] = {"renew": renewing} if RENEWS else {}
        lease = self._locks.lease(name, ttl=ttl, wait=wait, **options)
        hold = self._acquire(lease, renewing=renewing)
        if hold is None:
            time.sleep(chance.uniform(0, 0.05) * ttl)
            return
        wild = chance.random() < WILD
        for _ in range(chance.randrange(1, 4)):
            if wild and chance.random() < 0.7:  # too long for the lease, if nobody renews it
                paused = chance.uniform(1.05, 1.8) * ttl
                time.sleep(paused)
                if not renewing and chance.random() < 0.7:
                    self._write(hold, wild=True, late=paused)
            else:
                time.sleep(chance.uniform(0, 0.01) * ttl)
            hold.look()
            if chance.random() < 0.2:
                hold.renew()
            if chance.random() < 0.8:
                self._write(hold, wild=wild)
        self._end(hold, wild=wild, renewing=renewing)

    # --- the operations ----------------------------------------------------------------------

    def _acquire(self, lease: Lease, **detail: Any) -> HeldLease | None:
        operation = self._recorder.begin(
            "acquire", name=lease.name, ttl=lease.ttl, wait=lease.wait, **detail
        )
        with outcome(operation, nothing_changed=True):
            acquired = lease.acquire()
            at = now()
            if acquired:
                hold = HeldLease(self._recorder, lease, operation.op)
                deadline = at + lease.remaining
                operation.tell("ok", at, fence=hold.fence, deadline=deadline)
                return hold
            operation.tell("failed", at, error="NotAcquired")
        return None

    def _write(self, hold: HeldLease, *, wild: bool, late: float = 0.0) -> None:
        """Write under the guard; ``late`` as a holder that does not know how long it has slept."""
        chance, guarded = self._chance, self._plan.guarded
        operation = hold.begin("write", guarded=guarded, late=late)
        committing = False

        def commit() -> None:
            nonlocal committing
            operation.tell("commit")
            committing = True
            session.commit()

        id = f"{self._recorder.process}:{operation.op}"
        try:
            with Session(self._engine) as session:
                if not guarded:
                    ledger.write(session, id, hold.name, hold.fence)
                    commit()
                else:
                    inside = chance.random() < 0.5
                    with slow_clock(late), hold.lease.guard(session) as fence:
                        ledger.write(session, id, hold.name, fence)
                        if (
                            wild and chance.random() < 0.3
                        ):  # a takeover has to wait for this transaction
                            time.sleep(chance.uniform(0.5, 1.5) * self._plan.ttl)
                        if inside:
                            commit()
                    if not inside:
                        commit()
        except (LockLost, Conflict, Unavailable, OutcomeUnknown, DBAPIError) as error:
            operation.tell("unknown" if committing else "failed", **said(error))
        except Exception:
            operation.tell("error", error=traceback.format_exc())
        else:
            operation.tell("ok")

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


class HeldLease:
    """One hold; ``number`` is that of the operation that acquired it."""

    def __init__(self, recorder: Recorder, lease: Lease, number: int) -> None:
        self._recorder, self.lease = recorder, lease
        self.name, self.fence = lease.name, lease.fence
        self._number = number

    def begin(self, kind: str, **detail: Any) -> Operation:
        return self._recorder.begin(
            kind, name=self.name, hold=self._number, fence=self.fence, **detail
        )

    def look(self) -> None:
        """Write down whether its holder believes in it, and until when."""
        operation = self.begin("inside")
        at = now()
        with outcome(operation):
            self.lease.check()
            believed = self.lease.held
            deadline = at + self.lease.remaining
            step = "ok" if believed else "failed"
            operation.tell(step, at, deadline=deadline)

    def renew(self) -> None:
        operation = self.begin("renew")
        with outcome(operation):
            self.lease.renew()
            at = now()
            operation.tell("ok", at, deadline=at + self.lease.remaining)

    def release(self) -> bool:
        """Give it back; False when that is to be tried again."""
        operation = self.begin("release")
        with outcome(operation) as told:
            self.lease.release()
            operation.tell("ok")
        return "unknown" not in told


@contextlib.contextmanager
def outcome(operation: Operation, *, nothing_changed: bool = False) -> Iterator[list[str]]:
    """Write down the promised error an operation ends with, or that one came that nobody did.

    ``nothing_changed`` is what Unavailable says of an operation of one statement.
    """
    told: list[str] = []
    try:
        yield told
        return
    except LockLost as error:
        step, detail = "failed", said(error)
    except Unavailable as error:
        step, detail = "failed" if nothing_changed else "unknown", said(error)
    except OutcomeUnknown as error:
        step, detail = "unknown", said(error)
    except Exception:
        step, detail = "error", {"error": traceback.format_exc()}
    told.append(step)
    operation.tell(step, **detail)


def said(error: Exception) -> dict[str, Any]:
    detail = {"error": type(error).__name__, "said": str(error)[:300]}
    return detail | ({"reason": error.reason} if isinstance(error, LockLost) else {})


@contextlib.contextmanager
def slow_clock(late: float) -> Iterator[None]:
    """dblock's clock is behind: the holder still believes, only the database can refuse it."""
    real: Callable[[], float] = clock.now

    def behind() -> float:
        return real() - late

    with mock.patch.object(clock, "now", behind):
        yield


# PyMySQL's; of psycopg the nemesis takes care, by cutting what it has kept silent.
_TIMEOUTS = {"read_timeout": 5, "write_timeout": 5}
