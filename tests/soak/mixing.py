"""What workers do on a cluster: chaos, and beside it row locks, a counter and an election."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy.orm import Session

from dblock import Locks

from . import ledger
from .chaos import Chaos
from .history import Recorder
from .plan import Plan
from .recorded import campaign


class Mixed(Chaos):
    """Now and then a transaction, or a term, instead of a lease's section."""

    def __init__(self, plan: Plan, recorder: Recorder, locks: Locks) -> None:
        super().__init__(plan, recorder, locks)
        columns = ledger.register.c
        self._counter = locks.counter(columns.value, key=columns.name)

    def section(self) -> None:
        draw = self._chance.random()
        if draw < 0.25:
            self._write_under_a_row_lock()
        elif draw < 0.45:
            self._count()
        elif draw < 0.6:
            self._lead()
        else:
            super().section()

    def _write_under_a_row_lock(self) -> None:
        chance, ttl = self._chance, self._plan.ttl
        wait, think = chance.uniform(0, 0.5) * ttl, chance.uniform(0, 0.02) * ttl

        def write(session: Session, id: str, commit: Callable[[], None]) -> None:
            with self._locks.row(ledger.ROW, wait=wait, on=session):
                ledger.write(session, id, ledger.ROW, 0, think)

        self._transact(self._recorder.begin("write", name=ledger.ROW, fence=0), write)

    def _count(self) -> None:
        def write(session: Session, id: str, commit: Callable[[], None]) -> None:
            ledger.count(session, id, self._counter)

        self._transact(self._recorder.begin("write", name=ledger.COUNTER, fence=0), write)

    def _lead(self) -> None:
        chance, ttl = self._chance, self._plan.ttl
        wait = 0.0 if chance.random() < 0.5 else chance.uniform(0.2, 2) * ttl
        term = campaign(self._recorder, self._locks.election(ledger.LEADER, ttl=ttl), wait)
        if term is None:
            return
        until = time.monotonic() + chance.uniform(0, 0.3) * ttl
        while term.look() and time.monotonic() < until:
            if chance.random() < 0.3 and not self._write(term, wild=False):
                break
            time.sleep(chance.uniform(0, 0.05) * ttl)
        term.release()
