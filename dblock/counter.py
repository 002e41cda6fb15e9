"""Counters in the user's own tables: nothing is held, the statement itself decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session, scoped_session
from sqlalchemy.schema import Column, Table
from sqlalchemy.sql.compiler import SQLCompiler

from . import clock
from .arguments import check_name
from .borrowed import BorrowedTransaction, borrow
from .errors import Conflict, NotEnough
from .events import Kind, tell
from .protocol.faults import Fault, Trouble
from .protocol.steps import Query, Reply, RunHeld
from .protocol.troubles import explain, transaction_broken

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
    from sqlalchemy.sql.expression import ClauseElement

    from .borrowed import Borrowable
    from .database import Database
    from .policy import RetryPolicy

# For so many seconds after a lost race other races would be lost too.
HOT = 1.0
_KEY, _AMOUNT, _SEEN, _NEW = "dblock_key", "dblock_amount", "dblock_seen", "dblock_new"


class Counter:
    """A number in a row of a table of yours, made by :meth:`Locks.counter`.

    All methods run in the transaction of the session or connection they are given and commit with
    it. Each change is one atomic statement, so there is nothing to hold and nothing to expire.

    Errors of the database are told as Conflict and DeadlockDetected where the whole transaction
    has to run again; a mere lock wait timeout is retried by the policy.
    """

    def __init__(
        self,
        database: Database,
        column: Column[Any] | InstrumentedAttribute[Any],
        *,
        key: Column[Any] | InstrumentedAttribute[Any],
        version: Column[Any] | InstrumentedAttribute[Any] | None,
        floor: Any,
        retry: RetryPolicy,
    ) -> None:
        self._database = database
        self._retry = retry
        self._floor = floor
        self._attribute = column if isinstance(column, InstrumentedAttribute) else None
        self._column = _column("column", column)
        self._key = _column("key", key)
        self._version = None if version is None else _column("version", version)
        table = self._column.table
        if not isinstance(table, Table) or any(
            other is not None and other.table is not table for other in (self._key, self._version)
        ):
            raise ValueError("a counter's column, key and version are columns of one table")
        self._table = table
        seen = self._column if self._version is None else self._version
        self._plain_read = select(self._column.label("value"), seen.label("seen")).where(
            self._key == bindparam(_KEY, type_=self._key.type)
        )
        self._locked_read = self._plain_read.with_for_update()
        self._hot_until = 0.0
        self._statements: dict[str, Compiled] = {}

    def __repr__(self) -> str:
        return f"<Counter {self._column} by {self._key.name}>"

    def take(
        self, session: Borrowable, key: Any, n: Any = 1, *, idempotency_key: str | None = None
    ) -> bool:
        """Take ``n`` off; raise NotEnough, changing nothing, if that would go below the floor.

        One round trip. With an ``idempotency_key`` it is safe to repeat after a lost reply or a
        commit of unknown outcome: a key is applied once for ever, and False is returned for a
        repetition that changed nothing.
        """
        return self._change(session, key, -_amount(n), idempotency_key)

    def add(
        self, session: Borrowable, key: Any, n: Any = 1, *, idempotency_key: str | None = None
    ) -> bool:
        """Add ``n``. Everything else as for :meth:`take`."""
        return self._change(session, key, _amount(n), idempotency_key)

    def compare_and_update(self, session: Borrowable, key: Any, *, seen: Any, new: Any) -> bool:
        """Set the counter to ``new`` if it is still as ``seen``; False if not. One round trip.

        Without a version column ``seen`` is the value that was read, and a change there and back
        in the meantime goes unnoticed. With one, ``seen`` is the version that was read.
        """
        transaction = self._borrow(session)
        reply = self._run(transaction, self._compare(transaction), key, {_SEEN: seen, _NEW: new})
        self._expire(session, key)
        return reply.matched == 1

    def update(self, session: Borrowable, key: Any, change: Callable[[Any], Any]) -> Any:
        """Set the counter to ``change(value)``; return the new value.

        Optimistic: reads, computes, updates if nothing has changed, and tries again by the retry
        policy if something has. After a lost race, and in this process for a second from then on,
        the row is locked before it is read: on a hot row most races are lost, and by some callers
        all. Raises Conflict when the policy's tries are used up, or when this transaction's
        snapshot can never see the newer value.
        """
        transaction = self._borrow(session)
        start, number = clock.now(), 0
        while True:
            number += 1
            lock = number > 1 or clock.now() < self._hot_until
            value, version = self._read(transaction, key, lock=lock)
            new = change(value)
            seen = value if self._version is None else version
            reply = self._run(
                transaction, self._compare(transaction), key, {_SEEN: seen, _NEW: new}
            )
            if reply.matched == 1:
                self._expire(session, key)
                return new
            self._hot_until = clock.now() + HOT
            elapsed = clock.now() - start
            tell(Kind.CONFLICT, "optimistic", str(self._column), elapsed)
            sleep = self._retry.sleep_after(
                str(self), number, elapsed, None, most=0.0 if number == 1 else inf
            )
            if sleep is None:
                raise Conflict(
                    f"{self._column} of {self._key.name} {key!r} was changed by others between "
                    f"each of {number} reads and updates"
                )
            if sleep:
                self._database.world.sleep(sleep)

    def value(self, session: Borrowable, key: Any) -> Any:
        """Read the counter. Raises LookupError when there is no such row."""
        return self._read(self._borrow(session), key, lock=False)[0]

    # --- inside ------------------------------------------------------------------------------

    def _change(self, session: Borrowable, key: Any, n: Any, idempotency_key: str | None) -> bool:
        dialect = self._database.dialect
        transaction = self._borrow(session, locking=idempotency_key is not None)
        if idempotency_key is not None:
            check_name(idempotency_key, "an idempotency key")
            # First, so that a repetition in another transaction waits here for this one's end.
            if self._held(transaction, dialect.apply(idempotency_key)).matched == 0:
                return False
        reply = self._run(transaction, self._shift(transaction), key, {_AMOUNT: n})
        if reply.matched == 0:
            if idempotency_key is not None:
                self._held(transaction, dialect.unapply(idempotency_key))
            value, _ = self._read(transaction, key, lock=dialect.stale_reads)
            known = value is not None and self._floor is not None
            raise NotEnough(
                f"{self._column} of {self._key.name} {key!r} is {value}: changing it by {n} would "
                f"leave less than {self._floor}",
                available=value - self._floor if known else None,
            )
        self._expire(session, key)
        return True

    def _borrow(self, session: Borrowable, *, locking: bool = False) -> BorrowedTransaction:
        found = session() if isinstance(session, scoped_session) else session
        if isinstance(found, Session) and found.autoflush:
            found.flush()  # a row that is only pending could not be found
        transaction = borrow(found, self._database.dialect, locking=locking)
        if not isinstance(transaction, BorrowedTransaction):
            raise TypeError(
                "a counter works in an SQLAlchemy Connection or Session, not "
                f"{type(found).__name__}"
            )
        return transaction

    def _shift(self, transaction: BorrowedTransaction) -> Compiled:
        def statement() -> ClauseElement:
            new = self._column + bindparam(_AMOUNT, type_=self._column.type)
            where = [self._key == bindparam(_KEY, type_=self._key.type)]
            if self._floor is not None:
                where.append(new >= self._floor)
            return update(self._table).where(*where).values(self._next({self._column.name: new}))

        return self._compiled("shift", transaction, statement)

    def _compare(self, transaction: BorrowedTransaction) -> Compiled:
        def statement() -> ClauseElement:
            against = self._column if self._version is None else self._version
            return (
                update(self._table)
                .where(
                    self._key == bindparam(_KEY, type_=self._key.type),
                    against == bindparam(_SEEN, type_=against.type),
                )
                .values(self._next({self._column.name: bindparam(_NEW, type_=self._column.type)}))
            )

        return self._compiled("compare", transaction, statement)

    def _next(self, values: dict[str, Any]) -> dict[str, Any]:
        if self._version is not None:
            values[self._version.name] = self._version + 1
        return values

    def _compiled(
        self, name: str, transaction: BorrowedTransaction, make: Callable[[], ClauseElement]
    ) -> Compiled:
        """Return a statement as the driver wants it: built once, sent without Core's share."""
        if name not in self._statements:
            self._statements[name] = Compiled.of(make(), transaction.connection.dialect)
        return self._statements[name]

    def _run(
        self, transaction: BorrowedTransaction, compiled: Compiled, key: Any, values: dict[str, Any]
    ) -> Reply:
        return self._held(transaction, compiled.query({_KEY: key, **values}))

    def _held(self, transaction: BorrowedTransaction, query: Query) -> Reply:
        """Run a statement, again where a wait for the row ended it and nothing else."""
        dialect, start, number = self._database.dialect, clock.now(), 0
        while True:
            number += 1
            try:
                return transaction.run(RunHeld(query))
            except Trouble as trouble:
                sleep = None
                if trouble.fault is Fault.BUSY and not dialect.failure_aborts:
                    elapsed = clock.now() - start
                    left = self._database.timeouts.socket - elapsed
                    sleep = self._retry.sleep_after(str(self), number, elapsed, left)
                if sleep is None:
                    if trouble.fault is Fault.DISCONNECTED:
                        raise transaction_broken(trouble) from trouble.__cause__
                    raise explain(dialect, trouble) from trouble.__cause__
            self._database.world.sleep(sleep)

    def _read(self, transaction: BorrowedTransaction, key: Any, *, lock: bool) -> tuple[Any, Any]:
        # A lock is also the only way to the newest row under InnoDB's REPEATABLE READ.
        row = transaction.fetch(self._locked_read if lock else self._plain_read, {_KEY: key})
        if row is None:
            raise LookupError(f"{self._table.name} has no row with {self._key.name} {key!r}")
        return row.value, row.seen

    def _expire(self, session: Borrowable, key: Any) -> None:
        """Let the ORM read the column anew: it does not see what was done below it."""
        found = session() if isinstance(session, scoped_session) else session
        if self._attribute is None or not isinstance(found, Session):
            return
        mapper = self._attribute.parent
        if [column.name for column in mapper.primary_key] == [self._key.name]:
            instance = found.identity_map.get(mapper.identity_key_from_primary_key((key,)))
            if instance is not None:
                changed = [self._column] if self._version is None else [self._column, self._version]
                found.expire(instance, [mapper.get_property_by_column(c).key for c in changed])


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Core statement as text and parameters for the driver."""

    sql: str
    order: tuple[str, ...] | None
    constants: dict[str, Any]
    processors: Mapping[str, Callable[[Any], Any]]

    @classmethod
    def of(cls, statement: ClauseElement, dialect: SQLAlchemyDialect) -> Compiled:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        processors = {}
        for name, bind in compiled.binds.items():
            processor = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if processor is not None:
                processors[name] = processor
        order = None if compiled.positiontup is None else tuple(compiled.positiontup)
        return cls(str(compiled), order, dict(compiled.params), processors)

    def query(self, values: dict[str, Any]) -> Query:
        params = {**self.constants, **values}
        for name, processor in self.processors.items():
            params[name] = processor(params[name])
        if self.order is None:
            return Query(self.sql, params)
        return Query(self.sql, tuple(params[name] for name in self.order))


def _column(what: str, given: object) -> Column[Any]:
    found = given.property.columns[0] if isinstance(given, InstrumentedAttribute) else given
    if not isinstance(found, Column):
        raise TypeError(
            f"a counter's {what} is a Column or a mapped attribute, not {type(given).__name__}"
        )
    return found


def _amount(n: Any) -> Any:
    if isinstance(n, bool) or not isinstance(n, int | float | Decimal):
        raise TypeError(f"an amount is a number, not {type(n).__name__}: {n!r}")
    if not n > 0 or n == float("inf"):
        raise ValueError(f"an amount is above 0 and finite: {n!r}")
    return n
