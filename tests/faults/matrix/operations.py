"""The operations whose statements the faults meet: what each tells, and what is then found."""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from datetime import datetime
from typing import ClassVar, NamedTuple

from sqlalchemy import Column, Integer, MetaData, NullPool, Table, create_engine, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, NoResultFound
from sqlalchemy.orm import Session

from dblock import DBLockError, LockLost, Locks
from dblock.handles.lease import TakeableLease
from tests.faults.matrix.within import within
from tests.support import LONG, LockRow, lock_row

metadata = MetaData()
stock = Table("stock", metadata, Column("id", Integer, primary_key=True), Column("amount", Integer))
facts = Table("facts", metadata, Column("id", Integer, primary_key=True, autoincrement=False))

_numbers = itertools.count(1)
AMOUNT, TAKEN = 10, 3


class Ways(NamedTuple):
    """To one database: through the proxy, as the client goes, and around it, to look."""

    locks: Locks
    engine: Engine
    direct: Locks
    onlooker: Engine
    ttl: float
    patience: float  # of the user's own statements


class Operation(ABC):
    """``prepare`` and ``run`` go through the proxy, ``run`` into the fault; ``found`` around it."""

    name: ClassVar[str]

    def __init__(self, ways: Ways) -> None:
        self.ways = ways
        self.number = next(_numbers)
        self.lock = f"{self.name} {self.number}"
        self.lease: TakeableLease = ways.locks.lease(self.lock, ttl=ways.ttl, renew=False)

    @abstractmethod
    def prepare(self) -> None:
        """Come to where the operation begins, its connections made."""

    @abstractmethod
    def run(self) -> str:
        """Do it, and say what is told."""

    @abstractmethod
    def found(self) -> str:
        """Say what is in the tables, when all is over."""

    def told(self) -> str:
        """What the caller is told, in one word."""
        try:
            return self.run()
        except DBLockError as error:
            if isinstance(error, LockLost):
                assert not self.held, "it is told as lost and believed to be held"
            # The kinds of an error, SocketTimeout for one, say why; what counts is the error.
            return next(
                kind.__name__ for kind in type(error).__mro__ if DBLockError in kind.__bases__
            )

    @property
    def held(self) -> bool:
        """Whether the caller believes in its hold."""
        return self.lease.held

    def acquire(self, *, blocking: bool = True) -> None:
        """Take the lease, by the first grant of its name; who is told of an error has it not."""
        try:
            acquired = self.lease.acquire(blocking)
        except DBLockError:
            assert not self.lease.held
            raise
        assert acquired
        assert self.lease.held
        assert self.lease.fence == 1

    def row(self) -> LockRow | None:
        """The name's row of the lock table."""
        with contextlib.suppress(NoResultFound):
            return lock_row(self.ways.onlooker, self.ways.direct, self.lock)
        return None

    def hold(self) -> str:
        """The name's row: a hold of this lease's, or one that nobody believes in."""
        row = self.row()
        if row is not None and row.token is not None:
            assert row.fence == 1, f"it was granted {row.fence} times"
            if self.lease.held and row.token == self.lease.token:
                return "held, fence 1"
            state = self.ways.direct.show(self.lock)
            if state.remaining is not None and state.remaining > self.ways.ttl:
                return "held for too long"
        later = self.ways.direct.lease(self.lock, ttl=LONG)
        assert later.acquire(timeout=2 * self.ways.ttl)
        assert later.fence == (row.fence if row else 0) + 1
        return "free" if row is None or row.token is None else "free within the TTL"


class AcquireFree(Operation):
    name = "acquire (free)"

    def prepare(self) -> None:
        self.ways.locks.list()
        with self.ways.direct.row(self.lock):
            pass  # MariaDB takes a name that has a row with one statement

    def run(self) -> str:
        self.acquire()
        return "acquired"

    def found(self) -> str:
        return self.hold()


class AcquireHeld(Operation):
    name = "acquire (held)"

    def prepare(self) -> None:
        self.ways.locks.list()
        self.other = self.ways.direct.lease(self.lock, ttl=LONG)
        assert self.other.acquire()

    def run(self) -> str:
        return "acquired" if self.lease.acquire(blocking=False) else "refused"

    def found(self) -> str:
        row = self.row()
        assert row is not None
        same = (row.fence, row.token) == (1, self.other.token)
        return "another's, untouched" if same else f"fence {row.fence}"


class Renew(Operation):
    name = "renew"

    def prepare(self) -> None:
        assert self.lease.acquire()
        self.before = self.expiry()

    def expiry(self) -> datetime:
        row = self.row()
        assert row is not None
        assert row.expires_at is not None
        return row.expires_at

    def run(self) -> str:
        self.lease.renew()
        assert self.lease.held
        return "renewed"

    def found(self) -> str:
        hold = self.hold()
        if hold == "held, fence 1":
            return "held, renewed" if self.expiry() > self.before else "held, not renewed"
        return hold


class Release(Operation):
    name = "release"

    def prepare(self) -> None:
        assert self.lease.acquire()

    def run(self) -> str:
        self.lease.release()
        assert not self.lease.held
        return "released"

    def found(self) -> str:
        hold = self.hold()
        return "free within the TTL" if hold == "held, fence 1" else hold


class InTransaction(Operation):
    """An operation inside a transaction of the user's, which goes through the proxy as well."""

    done: ClassVar[str]

    def prepare(self) -> None:
        self.session = Session(self.ways.engine)
        self.session.execute(select(facts.c.id).limit(1))  # begins it
        self.driver = self.session.connection().connection.driver_connection

    def in_time(self) -> contextlib.AbstractContextManager[None]:
        """Bound how long the user's connection may take."""
        return within(self.driver, self.ways.patience)

    @abstractmethod
    def work(self) -> None: ...

    def run(self) -> str:
        failing = "statement fails"  # one of the user's own
        try:
            self.work()
            failing = "commit fails"
            with self.in_time():
                self.session.commit()
        except DBAPIError:
            return failing
        finally:
            with contextlib.suppress(DBAPIError), self.in_time():
                self.session.close()
        return self.done


class Guard(InTransaction):
    name = "guard"
    done = "committed"

    def prepare(self) -> None:
        assert self.lease.acquire()
        super().prepare()
        self.session.execute(facts.insert().values(id=self.number))

    def work(self) -> None:
        with self.lease.guard(self.session) as fence:
            assert fence == 1

    def found(self) -> str:
        with self.ways.onlooker.connect() as connection:
            query = select(facts.c.id).where(facts.c.id == self.number)
            return "written" if connection.execute(query).first() else "not written"


class FromStock(InTransaction):
    """Its effect is that something is taken from a stock of its own."""

    def prepare(self) -> None:
        with self.ways.onlooker.begin() as connection:
            connection.execute(stock.insert().values(id=self.number, amount=AMOUNT))
        super().prepare()

    def times(self, session: Session) -> int:
        """How often it was taken."""
        query = select(stock.c.amount).where(stock.c.id == self.number)
        left: int = session.execute(query).scalar_one()
        times, rest = divmod(AMOUNT - left, TAKEN)
        assert rest == 0
        return times


class Take(FromStock):
    name = "take"
    done = "taken"

    def prepare(self) -> None:
        super().prepare()
        self.key = f"order {self.number}"
        self.counter = self.ways.locks.counter(stock.c.amount, key=stock.c.id)
        self.ways.locks.show("any")  # which looks where the tables are

    def work(self) -> None:
        with self.in_time():  # how long it may wait for the row is the user's to say
            self.counter.take(self.session, self.number, TAKEN, idempotency_key=self.key)

    def found(self) -> str:
        """What a repeat of the whole transaction makes of it, the client not knowing what came."""
        engine = create_engine(self.ways.onlooker.url, poolclass=NullPool)
        with Session(engine) as session:
            self.counter.take(session, self.number, TAKEN, idempotency_key=self.key)
            session.commit()
            times = self.times(session)
        return "once, after a repeat" if times == 1 else f"{times} times, after a repeat"


OPERATIONS: dict[str, type[Operation]] = {
    kind.name: kind for kind in (AcquireFree, AcquireHeld, Renew, Release, Guard, Take)
}
