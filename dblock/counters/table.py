"""The statements over a counter's columns in the user's table, and the numbers that these hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Select, and_, bindparam, func, literal, select, type_coerce, update
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.exc import MultipleResultsFound
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.schema import Column, Table
from sqlalchemy.types import Float, NullType, Numeric, TypeDecorator

from ..dialects.query import Query
from ..io.borrowed import TableTransaction
from ..io.core_statement import Compiled
from ..io.sqlalchemy_transaction import BorrowedTransaction, borrow
from ..protocol.commands import Apply
from ..protocol.explain import explain
from ..protocol.faults import Fault, StatementError
from ..protocol.place import explain_borrowed
from ..protocol.steps import Reply
from .columns import Columns
from .numbers import Number, Numbers

if TYPE_CHECKING:
    from sqlalchemy.sql import Executable
    from sqlalchemy.sql.expression import ClauseElement, ColumnElement
    from sqlalchemy.types import TypeEngine

    from ..holding.database import Database
    from ..io.borrowed import Borrowable
    from ..policy import RetryPolicy

T = TypeVar("T")
Transaction = TypeVar("Transaction", bound=TableTransaction)

#: The user's tables in one database, with the types that their columns have there.
Types = WeakKeyDictionary[Table, dict[str, "TypeEngine[Any]"]]

#: Parameters of the statements.
KEY, AMOUNT, SEEN, NEW = "dblock_key", "dblock_amount", "dblock_seen", "dblock_new"
LEAST, MOST = "dblock_least", "dblock_most"


class CounterTable(ABC, Generic[Transaction]):
    """The statements of one counter.

    They run in the user's transactions. Each waits as long there as the user's own statements do,
    and the policy may repeat it.
    """

    #: Whether a change may take several statements, and so a transaction around them.
    several: ClassVar[bool] = False

    def __init__(
        self, database: Database, types: Types, columns: Columns, retry: RetryPolicy
    ) -> None:
        # The objects of the present database: in a test other locks may replace the database, but a
        # counter stays with the user's own table.
        self._dialect = database.dialect
        self._runtime = database.runtime
        self._whereabouts = database.whereabouts
        self._types = types
        self._retry = retry
        self.columns = columns
        self._numbers: dict[str, Numbers] = {}
        #: The keys are the driver, the statement's name, and the schemas.
        self._compiled: dict[tuple[Any, ...], Compiled] = {}

    @abstractmethod
    def borrow(self, session: Any, *, locking: bool = False, changing: bool = True) -> Transaction:
        """Return the user's transaction."""

    @abstractmethod
    def kind(self, transaction: Transaction, column: Column[Any]) -> Numbers:
        """Return the numbers that a column holds."""

    def expire(self, session: Any, key: Any) -> None:
        """Make the session read the changed row again, if it has read it before."""

    # --- the columns' numbers ----------------------------------------------------------------

    def numbers(self, transaction: Transaction, column: Column[Any]) -> Numbers:
        """Return the numbers that a column holds; they are found out once."""
        found = self._numbers.get(column.name)
        if found is None:
            found = self._numbers[column.name] = self.kind(transaction, column)
        return found

    def exactly(self, transaction: Transaction, what: str, number: Any) -> Number:
        """Return a number as the column holds it."""
        kind = self.columns.value.type
        if isinstance(kind, TypeDecorator):
            convert = kind.bind_processor(transaction.written_for)
            number = number if convert is None else convert(number)
        return self.numbers(transaction, self.columns.value).exactly(what, number)

    # --- statements --------------------------------------------------------------------------

    def read(
        self, transaction: Transaction, key: Any, *, lock: bool, to_compare: bool = False
    ) -> tuple[Any, Any]:
        """Return the value, and the value of :attr:`.Columns.compared`, with ``to_compare`` in the
        database's type."""
        columns = self.columns

        def statement() -> ClauseElement:
            seen: ColumnElement[Any] = columns.compared
            if to_compare:  # in the database's type: the model's type may round it
                seen = type_coerce(seen, self.numbers(transaction, columns.compared).type)
            reading = select(columns.value.label("value"), seen.label("seen")).where(
                columns.key == bindparam(KEY, type_=columns.key.type)
            )
            # The lock is also the only way to read the newest row under InnoDB's REPEATABLE READ.
            return reading.with_for_update() if lock else reading

        query = self.once(f"read {lock} {to_compare}", transaction, statement)
        rows = self.rows(transaction, query, key)
        self._check_one(rows, key)
        for value, seen in rows:
            return value, seen
        raise self.no_row(key)

    def check_one_row(self, transaction: Transaction, key: Any) -> None:
        """Raise an error if several rows have the key, and so nothing was changed."""
        columns = self.columns

        def statement() -> ClauseElement:
            return select(columns.key).where(columns.key == bindparam(KEY, type_=columns.key.type))

        self._check_one(self.rows(transaction, self.once("keys", transaction, statement), key), key)

    def _check_one(self, rows: Sequence[Any], key: Any) -> None:
        columns = self.columns
        if len(rows) > 1:
            raise MultipleResultsFound(
                f"{columns.key.name} {key!r} is in {len(rows)} rows of {columns.table.name}, and a "
                "counter counts in one row: nothing was changed. Give a key= that is unique"
            )

    def no_row(self, key: Any) -> LookupError:
        columns = self.columns
        return LookupError(f"{columns.table.name} has no row with {columns.key.name} {key!r}")

    def shift(
        self,
        transaction: Transaction,
        key: Any,
        amount: Number,
        least: Number,
        most: Number,
    ) -> bool:
        """Add an amount to a value from ``least`` to ``most``; False if no row has such a value."""
        if least > most:  # no number of this column is between them
            return False

        def statement() -> ClauseElement:
            value = self.columns.value
            numbers = self.numbers(transaction, value)
            amount, least, most = (
                bindparam(name, type_=numbers.type) for name in (AMOUNT, LEAST, MOST)
            )
            # The condition is on the old value, so that no result overflows the column's type.
            room = rounded(value, numbers).between(least, most)
            new = rounded(value + amount, numbers)
            return self.updating(transaction, and_(room, self.alone()), new)

        compiled = self.once("shift", transaction, statement)
        values = {KEY: key, AMOUNT: amount, LEAST: least, MOST: most}
        return self.run(transaction, compiled.query(values)).answer > 0

    def set(self, transaction: Transaction, key: Any, seen: Number, new: Number) -> bool:
        """Set the value of a row that is still as seen; False if it has changed."""

        def statement() -> ClauseElement:
            compared = self.columns.compared
            numbers = self.numbers(transaction, compared)
            same = rounded(compared, numbers) == bindparam(SEEN, type_=numbers.type)
            numbers = self.numbers(transaction, self.columns.value)
            new = bindparam(NEW, type_=numbers.type)
            return self.updating(transaction, and_(same, self.alone()), new)

        compiled = self.once("set", transaction, statement)
        values = {KEY: key, SEEN: seen, NEW: new}
        return self.run(transaction, compiled.query(values)).answer == 1

    def alone(self) -> ColumnElement[bool]:
        """Return the condition that exactly one row has the key. Without a unique constraint in the
        database, or with one for each partition only, a change would apply to several rows."""
        columns = self.columns
        other = columns.table.alias("dblock_other")
        found = other.c[columns.key.key] == bindparam(KEY, type_=columns.key.type)
        many = select(func.count().label("rows")).select_from(other).where(found)
        if self._dialect.traits.stale_reads:
            # InnoDB locks the rows that a change reads, with shared locks by default. Two
            # transactions with shared locks would wait for each other.
            many = many.with_for_update()
        return self.readable(many).scalar_subquery() == 1

    def readable(self, one: Select[Any]) -> Select[Any]:
        """Return a query of one value from the table, as an UPDATE of it may read it."""
        return select(*one.subquery().c) if self._dialect.derives else one

    def updating(
        self, transaction: Transaction, where: ColumnElement[bool], new: Any
    ) -> ClauseElement:
        columns = self.columns
        conditions = [columns.key == bindparam(KEY, type_=columns.key.type), where]
        values = {columns.value.name: new}
        if columns.version is not None:
            numbers = self.numbers(transaction, columns.version)
            conditions.append(columns.version < literal(numbers.most, numbers.type))
            values[columns.version.name] = columns.version + 1
        return update(columns.table).where(*conditions).values(values)

    def once(
        self, name: str, transaction: Transaction, make: Callable[[], ClauseElement]
    ) -> Compiled:
        """Return a compiled statement. It is built once, and runs without SQLAlchemy Core."""
        schemas = transaction.schemas
        key = transaction.driver.package, name, tuple(schemas.items()) if schemas else ()
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = Compiled.of(
                make(), transaction.written_for, self._dialect.newest, schemas
            )
        return found

    def rows(self, transaction: Transaction, query: Compiled, key: Any) -> Sequence[Sequence[Any]]:
        """Run a query, and return the rows of a key."""
        return self._retried(partial(transaction.rows, query, {KEY: key}))

    def record(self, transaction: Transaction, key: str) -> bool:
        """Record the key of a change in dblock's own table; False if it is on record already."""
        self._whereabouts.find(transaction)
        while True:
            apply = partial(transaction.execute, self._dialect.query(Apply(key)))
            if self._retried(apply, ours=True).answer:
                return True
            if not self._whereabouts.moved(transaction, key):
                return False

    def repeated(self, transaction: Transaction, change: Callable[[], T]) -> T:
        """Make a change in the user's transaction."""
        return change()

    def run(self, transaction: Transaction, query: Query[int]) -> Reply[int]:
        return self._retried(partial(transaction.execute, query))

    def sleep_after(self, number: int, start: float) -> float | None:
        """Return how many seconds to sleep after a try, or None to give up."""
        elapsed = self._runtime.now() - start
        left = self._dialect.timeouts.socket - elapsed
        return self._retry.sleep_after(f"<Counter {self.columns}>", number, elapsed, left)

    def _retried(self, do: Callable[[], T], *, ours: bool = False) -> T:
        """Run a statement, and repeat it if only its wait for the row ended.

        ``ours`` says that the statement uses one of dblock's own tables.
        """
        number, start = 0, self._runtime.now()
        while True:
            number += 1
            try:
                return do()
            except StatementError as failure:
                sleep = None
                if failure.fault is Fault.BUSY and not self._dialect.traits.failure_aborts:
                    sleep = self.sleep_after(number, start)
                if sleep is None:
                    broken = failure.fault is Fault.DISCONNECTED
                    told = explain_borrowed if ours or broken else explain
                    raise told(self._dialect, failure) from failure.__cause__
            self._runtime.sleep(sleep)


class SessionTable(CounterTable[BorrowedTransaction]):
    """A counter's statements in SQLAlchemy's transactions."""

    def borrow(
        self, session: Borrowable, *, locking: bool = False, changing: bool = True
    ) -> BorrowedTransaction:
        """Return the user's transaction."""
        found = session() if isinstance(session, scoped_session) else session
        transaction = borrow(
            found, self._dialect, self._runtime, locking=locking, changing=changing
        )
        if isinstance(found, Session) and found.autoflush:
            found.flush()  # a row that is only pending could not be found
        if not isinstance(transaction, BorrowedTransaction):
            raise TypeError(
                "a counter works in an SQLAlchemy Connection or Session, not "
                f"{type(found).__name__}"
            )
        if self.several:
            transaction.note_whether_fresh()
        transaction.recognise()
        return transaction

    def kind(self, transaction: BorrowedTransaction, column: Column[Any]) -> Numbers:
        """Return the numbers of the column's type in the database. If that type says nothing
        (SQLite's columns without a type, PostgreSQL's domains of NUMERIC), use the metadata's."""
        types, table = self._types, self.columns.table
        if table not in types:
            types[table] = self._retried(partial(transaction.types, table))
        kind = types[table].get(column.name)
        while isinstance(kind, DOMAIN):
            kind = kind.data_type
            if isinstance(kind, Numeric) and not isinstance(kind, Float):
                kind = None  # SQLAlchemy does not show how many digits a domain has
        if kind is None or isinstance(kind, NullType):
            kind = column.type
        return Numbers.of(str(column), kind, self._dialect.dynamic_types)

    def expire(self, session: Borrowable, key: Any) -> None:
        """Make the ORM read the changed row again."""
        self.columns.expire(session, [(key,)])

    def write(self, transaction: BorrowedTransaction, statement: Executable, rows: Any) -> None:
        """Run a statement through SQLAlchemy Core, which is slower; it is rare."""
        self._retried(partial(transaction.execute_core, statement, rows))


def rounded(value: ColumnElement[Any], numbers: Numbers) -> ColumnElement[Any]:
    return func.round(value, numbers.scale) if numbers.rounded else value
