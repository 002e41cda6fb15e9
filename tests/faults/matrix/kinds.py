"""The operations of the other kinds of locks: slots, shares, handovers, terms, calls and gates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from dblock import DBLockError, LockLost, Locks, StaleFence
from dblock.fencing import gate, table
from tests.faults.matrix.operations import TAKEN, FromStock, Operation, Ways, metadata, stock
from tests.support import LONG, Threads, expire, lock_row

SLOTS = 2
VALUE, ANOTHERS = {"address": "10.0.0.7"}, "another's"
RESULT = {"order": 7}
STALE, EARLIER, OURS, LATER = range(1, 5)  # fences

table(metadata)


class OfSemaphore(Operation):
    """Another has one of two slots, and ``lock`` is the other one. All rows are there."""

    def __init__(self, ways: Ways) -> None:
        super().__init__(ways)
        self.whole = self.lock
        self.slots = [f"{self.whole}#{number}" for number in range(1, SLOTS + 1)]
        self.semaphore = ways.locks.semaphore(self.whole, SLOTS, ttl=ways.ttl, renew=False)
        self.another = ways.direct.semaphore(self.whole, SLOTS, ttl=LONG)

    def prepare(self) -> None:
        self.ways.locks.list()
        assert self.another.acquire()
        (self.lock,) = {*self.slots} - {self.another.slot.name}
        with self.ways.direct.row(self.lock):
            pass  # its row is made

    def take(self) -> None:
        """Take the slot that is free."""
        assert self.semaphore.acquire()
        self.lease = self.semaphore.slot
        assert self.lease.name == self.lock
        assert self.lease.held
        assert self.lease.fence == 1

    def found(self) -> str:
        """Whose the slot is. In the end both are held, and nobody gets a third."""
        hold = self.hold()
        self.another.slot.renew()
        row = lock_row(self.ways.onlooker, self.ways.direct, self.another.slot.name)
        assert (row.fence, row.token) == (1, self.another.slot.token)
        assert not self.ways.direct.semaphore(self.whole, SLOTS).acquire(blocking=False)
        held = {state.name for state in self.ways.direct.list()}
        assert {name for name in held if name.partition("#")[0] == self.whole} == {*self.slots}
        return hold


class TakeSlot(OfSemaphore):
    name = "take a slot"

    def run(self) -> str:
        try:
            self.take()
        except DBLockError:
            assert self.semaphore._current() is None
            raise
        return "acquired"


class GiveSlotBack(OfSemaphore):
    name = "release a slot"

    def prepare(self) -> None:
        super().prepare()
        self.take()

    def run(self) -> str:
        try:
            self.semaphore.release()
        finally:
            assert not self.lease.held
        return "released"


class OfSharedLease(Operation):
    """Another reader has the name, and keeps it."""

    def prepare(self) -> None:
        self.ways.locks.list()
        self.lease = self.ways.locks.shared(self.lock, ttl=self.ways.ttl, renew=False)
        self.another = self.ways.direct.shared(self.lock, ttl=LONG)
        self.writer = self.ways.direct.lease(self.lock, ttl=LONG)
        threads = Threads()  # the thread that writes has no share itself
        assert threads.run(self.another.acquire)
        threads.close()

    def found(self) -> str:
        """Who has a share. A writer gets the name when nobody has one."""
        self.another.renew()
        row = self.row()
        assert row is not None
        assert (row.fence, row.token) == (1, self.another.token)
        readers = self.ways.direct.show(self.lock).readers
        assert readers in (1, 2)
        assert not self.writes(), "a writer beside readers"
        self.another.release()
        if self.lease.held:
            assert readers == 2, "it believes in a share that is not there"
            assert not self.writes(), "a writer beside the reader"
            return "shared by both"
        if readers == 2:
            expire(self.ways.onlooker, self.ways.direct, self.lock)
        assert self.writes()
        assert self.writer.fence == 2
        return "another's" if readers == 1 else "another's, and a share within the TTL"

    def writes(self) -> bool:
        return self.writer.acquire(blocking=False)


class Join(OfSharedLease):
    name = "join readers"

    def run(self) -> str:
        self.acquire(blocking=False)
        return "acquired"


class Leave(OfSharedLease):
    name = "leave readers"

    def prepare(self) -> None:
        super().prepare()
        self.acquire(blocking=False)

    def run(self) -> str:
        try:
            self.lease.release()
        finally:
            assert not self.lease.held
        return "released"


class Attach(Operation):
    """Goes on with what another has detached."""

    name = "attach"

    def prepare(self) -> None:
        self.ways.locks.list()
        detached = self.ways.direct.lease(self.lock, ttl=LONG)
        assert detached.acquire()
        self.handover = detached.detach()
        self.lease = self.ways.locks.attach(self.handover, ttl=self.ways.ttl, renew=False)

    def run(self) -> str:
        self.acquire()
        return "attached"

    def found(self) -> str:
        """What comes of a second delivery of the same text."""
        second, reason = self.ways.direct.attach(self.handover, ttl=LONG), ""
        try:
            assert second.acquire()
        except LockLost as loss:
            reason = loss.reason
        if reason:
            over = not self.ways.direct.show(self.lock).held
            assert reason == "attached" or (reason == "expired" and over)
            return self.hold()
        assert not self.lease.held, "it goes on twice"
        assert second.fence == 1
        return "detached"


class Proclaim(Operation):
    """Tells a value for its term, after that of another, which had one too."""

    name = "proclaim"

    def prepare(self) -> None:
        self.election = self.ways.direct.election(self.lock, ttl=LONG)
        with self.election.campaign() as term:
            term.proclaim(ANOTHERS)
        self.term = self.ways.locks.election(self.lock, ttl=self.ways.ttl).campaign()
        assert self.term.fence == 2

    @property
    def held(self) -> bool:
        return self.term.held

    def run(self) -> str:
        self.term.proclaim(VALUE)
        assert self.term.held
        return "proclaimed"

    def found(self) -> str:
        """What is written, and told while the term lasts. It ends with the term."""
        value = self.written()
        assert value in (None, VALUE)
        leader = self.election.leader()
        if leader is not None:
            assert (leader.fence, leader.value) == (2, value)
        assert leader is not None or not self.term.held, "it believes in a term that is over"
        self.ways.direct.release(self.lock, force=True)
        with self.election.campaign(wait=LONG) as later:
            assert later.fence == 3
            leader = self.election.leader()
            assert leader is not None
            assert (leader.fence, leader.value) == (3, None)
        return "not written" if value is None else "written"

    def written(self) -> Any:
        """Its value, read without dblock."""
        query = text("SELECT fence, value FROM dblock_value WHERE lock_name = :name")
        with self.ways.onlooker.connect() as connection:
            name = {"name": self.ways.direct._database.dialect.key(self.lock)}
            fence, value = connection.execute(query, name).one()
        assert fence == 2
        return json.loads(value)


class Committed(FromStock):
    """An effect in the user's transaction, by a statement of the user's own."""

    done = "committed"

    def affect(self, session: Session) -> None:
        change = update(stock).where(stock.c.id == self.number)
        session.execute(change.values(amount=stock.c.amount - TAKEN))


class OnceOnly(Committed):
    """The effect of a call with an idempotency key."""

    name = "once"

    def prepare(self) -> None:
        super().prepare()
        self.ways.locks.show("any")  # which looks where the tables are

    def work(self) -> None:
        with self.in_time():
            assert not self.call(self.ways.locks, self.session)

    def call(self, locks: Locks, session: Session) -> bool:
        """Do it, unless it was done before; return whether it was."""
        with locks.once(session, self.lock) as call:
            if call.replayed:
                assert call.result == RESULT
                return True
            self.affect(session)
            call.result = RESULT
            return False

    def found(self) -> str:
        """What a repeat of the whole transaction makes of it, the client not knowing what came."""
        with Session(self.ways.onlooker) as session:
            replayed = self.call(self.ways.direct, session)
            session.commit()
            assert self.times(session) == 1
        return "once, at first" if replayed else "once, by the repeat"


class PassGate(Committed):
    """The effect of a holder whose fence passes the gate, after a smaller one."""

    name = "gate"

    def prepare(self) -> None:
        self.enter(EARLIER)
        super().prepare()

    def work(self) -> None:
        with self.in_time():
            gate(self.session, self.lock, OURS)
            self.affect(self.session)

    def enter(self, fence: int) -> None:
        """Pass the gate in a transaction around the faulty way."""
        with self.ways.onlooker.begin() as connection:
            gate(connection, self.lock, fence)

    def found(self) -> str:
        """Whether the effect is there, and its fence with it. Then a larger one passes at once."""
        with Session(self.ways.onlooker) as session:
            times = self.times(session)
        assert (self.newest(), times) in ((EARLIER, 0), (OURS, 1))
        self.enter(LATER)
        assert self.newest() == LATER
        return "written" if times else "not written"

    def newest(self) -> int:
        """The largest fence that was let through, as a stale holder is told."""
        with pytest.raises(StaleFence) as refused:
            self.enter(STALE)
        newest = refused.value.newest
        assert newest is not None
        return newest


OF_KINDS: dict[str, type[Operation]] = {
    kind.name: kind
    for kind in (TakeSlot, GiveSlotBack, Join, Leave, Attach, Proclaim, OnceOnly, PassGate)
}
