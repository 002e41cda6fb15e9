"""Counters in the user's own tables: nothing is held, the statement itself decides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import bindparam, func, literal, select, type_coerce, update
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import InstrumentedAttribute, Session, scoped_session
from sqlalchemy.schema import Column, Table
from sqlalchemy.types import Float, NullType, Numeric, TypeDecorator

from .amounts import Number, Numbers, check_number
from .arguments import check_name
from .compiled import Compiled
from .errors import Conflict, DBLockError, NotEnough, Unsupported
from .events import Kind, tell
from .io.borrowed import BorrowedTransaction, borrow
from .protocol.explain import explain, transaction_broken
from .protocol.faults import Fault, StatementError
from .protocol.steps import ExecuteInTransaction, Query, Reply

if TYPE_CHECKING:
    from sqlalchemy.sql.expression import ClauseElement, ColumnElement, Select

    from .database import Database
    from .io.borrowed import Borrowable
    from .policy import RetryPolicy

T = TypeVar("T")

# For so many seconds after a lost race other races would be lost too.
HOT = 1.0
_KEY, _AMOUNT, _SEEN, _NEW = "dblock_key", "dblock_amount", "dblock_seen", "dblock_new"
_LEAST, _MOST = "dblock_least", "dblock_most"


class Counter:
    """A number in a row of a table of yours, made by :meth:`Locks.counter`.

    All methods run in the transaction of the session or connection they are given and commit with
    it. Each change is one atomic statement, so there is nothing to hold and nothing to expire.

    What the column holds exactly is looked at once, in the database: an integer column takes whole
    amounts, a NUMERIC(12, 2) those with two decimals. Others are a ValueError, and a result that
    the column has no room for is an OverflowError: both change nothing, and the transaction goes
    on. A floating point column counts as well as such numbers do; :meth:`update` and
    :meth:`compare_and_update` need a version column there. NULL is no number: Unsupported.

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
        self._dialect = database.dialect
        self._retry = retry
        if floor is not None:
            check_number("a counter's floor", floor)
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
        self._compared = self._column if self._version is None else self._version
        self._read_as_told = self._reading(self._compared)
        self._read_to_compare: Select[Any] | None = None
        self._hot_until = 0.0
        self._statements: dict[str, Compiled] = {}
        self._known: dict[str, Numbers] = {}

    def __repr__(self) -> str:
        return f"<Counter {self._column} by {self._key.name}>"

    def take(
        self, session: Borrowable, key: Any, n: Any = 1, *, idempotency_key: str | None = None
    ) -> bool:
        """Take ``n`` off; raise NotEnough, changing nothing, if that would go below the floor.

        One round trip. With an ``idempotency_key`` it is safe to repeat after a lost reply or a
        commit of unknown outcome: a key is applied once for ever, and False is returned for a
        repetition that changed nothing. A key is all that is remembered, not what it was for: let
        each change have its own, in an order of several lines ``f"{order}:{line}"``.
        """
        return self._change(session, key, n, -1, idempotency_key)

    def add(
        self, session: Borrowable, key: Any, n: Any = 1, *, idempotency_key: str | None = None
    ) -> bool:
        """Add ``n``. Everything else as for :meth:`take`, but for the floor."""
        return self._change(session, key, n, 1, idempotency_key)

    def compare_and_update(self, session: Borrowable, key: Any, *, seen: Any, new: Any) -> bool:
        """Set the counter to ``new`` if it is still as ``seen``; False if not. One round trip.

        Without a version column ``seen`` is the value that was read, and a change there and back
        in the meantime goes unnoticed. With one, ``seen`` is the version that was read.
        """
        check_number("what was seen", seen)
        check_number("the new value", new)
        transaction = self._borrow(session)
        self._comparable(transaction)
        if self._version is None:
            seen = self._exactly(transaction, "what was seen", seen)
        matched = self._set(transaction, key, seen, new)
        self._expire(session, key)
        return matched

    def update(self, session: Borrowable, key: Any, change: Callable[[Any], Any]) -> Any:
        """Set the counter to ``change(value)``; return the new value.

        Optimistic: reads, computes, updates if nothing has changed, and tries again by the retry
        policy if something has. After a lost race, and in this process for a second from then on,
        the row is locked before it is read: on a hot row most races are lost, and by some callers
        all. Raises Conflict when the policy's tries are used up, or when this transaction's
        snapshot can never see the newer value.
        """
        transaction = self._borrow(session)
        numbers = self._comparable(transaction)
        if self._read_to_compare is None:  # by the type it has there: a model's may round it
            self._read_to_compare = self._reading(type_coerce(self._compared, numbers.type))
        start, number = self._database.runtime.now(), 0
        while True:
            number += 1
            lock = number > 1 or self._database.runtime.now() < self._hot_until
            value, seen = self._read(transaction, key, lock=lock, reading=self._read_to_compare)
            if value is None or seen is None:
                raise self._is_null(key, value)
            new = change(value)
            if self._set(transaction, key, seen, new):
                self._expire(session, key)
                return new
            self._hot_until = self._database.runtime.now() + HOT
            elapsed = self._database.runtime.now() - start
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
                self._database.runtime.sleep(sleep)

    def value(self, session: Borrowable, key: Any) -> Any:
        """Read the counter. Raises LookupError when there is no such row."""
        return self._read(self._borrow(session), key, lock=False)[0]

    # --- inside ------------------------------------------------------------------------------

    def _change(
        self, session: Borrowable, key: Any, n: Any, sign: int, idempotency_key: str | None
    ) -> bool:
        check_number("an amount", n)
        if n <= 0:
            raise ValueError(f"an amount is above 0: {n!r}")
        if idempotency_key is not None:
            check_name(idempotency_key, "an idempotency key")
        dialect = self._dialect
        transaction = self._borrow(session, locking=idempotency_key is not None)
        numbers, amount, least, most = self._room(transaction, n, sign)
        if idempotency_key is not None:
            # First, so that a repetition in another transaction waits here for this one's end.
            applied = self._run(transaction, dialect.apply(idempotency_key))
            if applied.matched == 0:
                return False
        changed = False
        try:
            if least <= most:  # else no number of this column is between them
                values = {_KEY: key, _AMOUNT: amount, _LEAST: least, _MOST: most}
                changed = self._run(transaction, self._shift(transaction).query(values)).matched > 0
        except (DBLockError, DBAPIError):
            gone = dialect.failure_aborts or transaction.connection.invalidated
            if idempotency_key is not None and not gone:  # and with it the key
                with contextlib.suppress(DBLockError, DBAPIError):
                    self._run(transaction, dialect.unapply(idempotency_key))
            raise
        if not changed:
            if idempotency_key is not None:
                self._run(transaction, dialect.unapply(idempotency_key))
            raise self._refusal(transaction, key, n, sign, numbers)
        self._expire(session, key)
        return True

    def _room(
        self, transaction: BorrowedTransaction, n: Any, sign: int
    ) -> tuple[Numbers, Number, Number, Number]:
        """Return the column's numbers, the amount, and from what to what the value may be."""
        numbers = self._numbers(transaction, self._column)
        amount = sign * self._exactly(transaction, "an amount", n)
        floor = None
        if self._floor is not None and self._floor > numbers.least:
            floor = self._exactly(transaction, "a counter's floor", self._floor)
        return numbers, amount, *numbers.room(amount, floor)

    def _refusal(
        self, transaction: BorrowedTransaction, key: Any, n: Any, sign: int, numbers: Numbers
    ) -> Exception:
        """Return why a change was refused: by now another one may have made room for it."""
        value, version = self._read(transaction, key, lock=self._dialect.stale_reads)
        if value is None or version is None:
            return self._is_null(key, value)
        what = f"{self._column} of {self._key.name} {key!r} is {value}: "
        what += f"changing it by {sign * n} would leave "
        if numbers.digits is not None and abs(value) > n * 2 ** (numbers.digits - 1):
            return OverflowError(f"{what}it as it is, with the digits that {numbers.type} has")
        held = self._version is not None and self._numbers(transaction, self._version)
        if held and version >= held.most:
            return OverflowError(f"{what}no room for {self._version} after {version}")
        if sign > 0:
            return OverflowError(f"{what}more than {numbers.most}, the most in {numbers.type}")
        if self._floor is None or self._floor <= numbers.least:
            known = numbers.whole and not isinstance(self._column.type, TypeDecorator)
            return NotEnough(
                f"{what}less than {numbers.least}, the least in {numbers.type}",
                available=value - numbers.least if known else None,
            )
        floor = float(self._floor) if isinstance(value, float) else self._floor
        return NotEnough(f"{what}less than {self._floor}", available=value - floor)

    def _is_null(self, key: Any, value: Any) -> Unsupported:
        column = self._column if value is None else self._version
        return Unsupported(
            f"{column} of {self._key.name} {key!r} is NULL, and nothing can be counted from "
            "there: set it to a number, and let the column be NOT NULL"
        )

    def _reading(self, seen: ColumnElement[Any]) -> Select[Any]:
        return select(self._column.label("value"), seen.label("seen")).where(
            self._key == bindparam(_KEY, type_=self._key.type)
        )

    def _comparable(self, transaction: BorrowedTransaction) -> Numbers:
        """Return the numbers that are compared; refuse those that may be rounded when read."""
        numbers = self._numbers(transaction, self._column)
        if self._version is None and numbers.inexact:
            raise Unsupported(
                f"{self._column} is {numbers.type}, and a value that was read from there need not "
                "compare equal: give the counter a version column, or the table a NUMERIC with "
                "its decimals; take and add work"
            )
        return self._numbers(transaction, self._compared)

    def _set(self, transaction: BorrowedTransaction, key: Any, seen: Any, new: Any) -> bool:
        new = self._exactly(transaction, "the new value", new)
        numbers = self._numbers(transaction, self._compared)
        if self._version is None:
            seen = numbers.exactly("what was seen", seen)
        else:
            seen = numbers.exactly("the version that was seen", seen)
            if seen >= numbers.most:
                raise OverflowError(f"there is no room for {self._version} after {seen}")
        values = {_KEY: key, _SEEN: seen, _NEW: new}
        return self._run(transaction, self._compare(transaction).query(values)).matched == 1

    def _exactly(self, transaction: BorrowedTransaction, what: str, number: Any) -> Number:
        """Return a number as the column holds it."""
        kind = self._column.type
        if isinstance(kind, TypeDecorator):
            convert = kind.bind_processor(transaction.connection.dialect)
            number = number if convert is None else convert(number)
        return self._numbers(transaction, self._column).exactly(what, number)

    def _numbers(self, transaction: BorrowedTransaction, column: Column[Any]) -> Numbers:
        """Return which numbers a column holds: by its type in the database, and by its type here
        where that says nothing (SQLite's columns without one, PostgreSQL's domains of NUMERIC)."""
        found = self._known.get(column.name)
        if found is None:
            types = self._database.types
            if self._table not in types:
                types[self._table] = self._held(partial(transaction.types, self._table))
            kind = types[self._table].get(column.name)
            while isinstance(kind, DOMAIN):
                kind = kind.data_type
                if isinstance(kind, Numeric) and not isinstance(kind, Float):
                    kind = None  # SQLAlchemy does not tell how many digits a domain's has
            if kind is None or isinstance(kind, NullType):
                kind = column.type
            found = self._known[column.name] = Numbers.of(
                str(column), kind, self._dialect.dynamic_types
            )
        return found

    def _borrow(self, session: Borrowable, *, locking: bool = False) -> BorrowedTransaction:
        found = session() if isinstance(session, scoped_session) else session
        if isinstance(found, Session) and found.autoflush:
            found.flush()  # a row that is only pending could not be found
        transaction = borrow(found, self._dialect, self._database.runtime, locking=locking)
        if not isinstance(transaction, BorrowedTransaction):
            raise TypeError(
                "a counter works in an SQLAlchemy Connection or Session, not "
                f"{type(found).__name__}"
            )
        self._database.recognise(transaction)
        return transaction

    def _shift(self, transaction: BorrowedTransaction) -> Compiled:
        def statement() -> ClauseElement:
            numbers = self._numbers(transaction, self._column)
            amount, least, most = (
                bindparam(name, type_=numbers.type) for name in (_AMOUNT, _LEAST, _MOST)
            )
            # About the value as it is, so that nothing is computed that the column cannot hold.
            room = _rounded(self._column, numbers).between(least, most)
            return self._update(transaction, room, _rounded(self._column + amount, numbers))

        return self._compiled("shift", transaction, statement)

    def _compare(self, transaction: BorrowedTransaction) -> Compiled:
        def statement() -> ClauseElement:
            numbers = self._numbers(transaction, self._compared)
            same = _rounded(self._compared, numbers) == bindparam(_SEEN, type_=numbers.type)
            numbers = self._numbers(transaction, self._column)
            return self._update(transaction, same, bindparam(_NEW, type_=numbers.type))

        return self._compiled("compare", transaction, statement)

    def _update(
        self, transaction: BorrowedTransaction, where: ColumnElement[bool], new: Any
    ) -> ClauseElement:
        conditions = [self._key == bindparam(_KEY, type_=self._key.type), where]
        values = {self._column.name: new}
        if self._version is not None:
            numbers = self._numbers(transaction, self._version)
            conditions.append(self._version < literal(numbers.most, numbers.type))
            values[self._version.name] = self._version + 1
        return update(self._table).where(*conditions).values(values)

    def _compiled(
        self, name: str, transaction: BorrowedTransaction, make: Callable[[], ClauseElement]
    ) -> Compiled:
        """Return a statement as the driver wants it: built once, sent without Core's share."""
        if name not in self._statements:
            self._statements[name] = Compiled.of(make(), transaction.connection.dialect)
        return self._statements[name]

    def _run(self, transaction: BorrowedTransaction, query: Query[Any]) -> Reply:
        return self._held(partial(transaction.run, ExecuteInTransaction(query)))

    def _held(self, do: Callable[[], T]) -> T:
        """Run a statement, again where a wait for the row ended it and nothing else."""
        dialect, start, number = self._dialect, self._database.runtime.now(), 0
        while True:
            number += 1
            try:
                return do()
            except StatementError as failure:
                sleep = None
                if failure.fault is Fault.BUSY and not dialect.failure_aborts:
                    elapsed = self._database.runtime.now() - start
                    left = self._database.timeouts.socket - elapsed
                    sleep = self._retry.sleep_after(str(self), number, elapsed, left)
                if sleep is None:
                    if failure.fault is Fault.DISCONNECTED:
                        raise transaction_broken(failure) from failure.__cause__
                    raise explain(dialect, failure) from failure.__cause__
            self._database.runtime.sleep(sleep)

    def _read(
        self,
        transaction: BorrowedTransaction,
        key: Any,
        *,
        lock: bool,
        reading: Select[Any] | None = None,
    ) -> tuple[Any, Any]:
        reading = self._read_as_told if reading is None else reading
        if lock:  # also the only way to the newest row under InnoDB's REPEATABLE READ
            reading = reading.with_for_update()
        row = self._held(partial(transaction.fetch, reading, {_KEY: key}))
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


def _column(what: str, given: object) -> Column[Any]:
    found = given.property.columns[0] if isinstance(given, InstrumentedAttribute) else given
    if not isinstance(found, Column):
        raise TypeError(
            f"a counter's {what} is a Column or a mapped attribute, not {type(given).__name__}"
        )
    return found


def _rounded(value: ColumnElement[Any], numbers: Numbers) -> ColumnElement[Any]:
    return func.round(value, numbers.scale) if numbers.rounded else value
