"""A number spread over several rows (stripes), so that several transactions change it at once.

::

    a free row has enough ──> change that row alone ───────────────────────> done
      └── no ──> wait for a row that has enough ───────────────────────────> done
                   └── none has ──> read all ── not enough in all ─────────> refused
                                      └── enough ──> lock all, even out ──> done

The floor applies to the whole number. No row is ever below zero, so a row that keeps the floor by
itself keeps it for all. A change that needs more than one row locks all of them, in one order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import and_, bindparam, func, insert, select, true, type_coerce
from sqlalchemy.exc import MultipleResultsFound
from sqlalchemy.types import Integer

from ..errors import DeadlockDetected, Unsupported
from ..protocol.faults import StatementError
from .columns import Columns
from .numbers import Number, Numbers, even_parts, exact_sum
from .table import AMOUNT, KEY, LEAST, MOST, NEW, SessionTable, rounded

if TYPE_CHECKING:
    from sqlalchemy.schema import Column
    from sqlalchemy.sql.expression import ClauseElement, ColumnElement

    from ..holding.database import Database
    from ..io.borrowed import Borrowable
    from ..io.sqlalchemy_transaction import BorrowedTransaction
    from ..policy import RetryPolicy
    from .table import Types

T = TypeVar("T")

_START, _STRIPE = "dblock_start", "dblock_stripe"
_NONE = -1  # no stripe has this number

#: A row: its stripe, its value in the user's type, and its value in the database's type.
Row = tuple[int, Any, Any]


def check_stripes(columns: Columns, stripes: object, floor: Number | None) -> int:
    """Return the number of stripes. Raises TypeError and ValueError for an invalid one."""
    if isinstance(stripes, bool) or not isinstance(stripes, int):
        raise TypeError(f"stripes= is a number of rows, not {type(stripes).__name__}: {stripes!r}")
    if stripes < 1:
        raise ValueError(f"a counter has one stripe at least: {stripes!r}")
    if columns.version is not None:
        raise ValueError("a striped counter has no version column: each stripe would have its own")
    if floor is None or floor < 0:
        raise ValueError(
            f"a striped counter's floor is 0 or more, for a stripe says nothing of the others' "
            f"debts: {floor!r}"
        )
    keys = list(columns.table.primary_key.columns)
    if keys[:1] != [columns.key] or [isinstance(key.type, Integer) for key in keys[1:]] != [True]:
        raise ValueError(
            f"a striped counter has a row for each {columns.key.name} and stripe: the primary key "
            f"of {columns.table.name} has to be ({columns.key.name}, an integer column)"
        )
    return stripes


class StripedTable(SessionTable):
    """The statements of one striped counter."""

    several = True

    def __init__(
        self,
        database: Database,
        types: Types,
        columns: Columns,
        retry: RetryPolicy,
        stripes: int,
    ) -> None:
        super().__init__(database, types, columns, retry)
        self._stripes = stripes
        self._stripe: Column[Any] = list(columns.table.primary_key.columns)[1]

    # --- reading -----------------------------------------------------------------------------

    def read(
        self, transaction: BorrowedTransaction, key: Any, *, lock: bool, to_compare: bool = False
    ) -> tuple[Any, Any]:
        """Return the sum, in the user's type and in the database's type."""
        rows = self._rows(transaction, key, lock=lock)
        if not rows:
            raise self.no_row(key)
        if any(value is None or seen is None for _, value, seen in rows):
            return None, None
        return exact_sum(value for _, value, _ in rows), exact_sum(seen for _, _, seen in rows)

    def _rows(self, transaction: BorrowedTransaction, key: Any, *, lock: bool) -> list[Row]:
        columns, stripe = self.columns, self._stripe

        def statement() -> ClauseElement:
            numbers = self.numbers(transaction, columns.value)
            seen = type_coerce(columns.value, numbers.type).label("seen")
            reading = (
                select(stripe, columns.value.label("value"), seen)
                .where(columns.key == bindparam(KEY, type_=columns.key.type))
                .order_by(stripe)
            )
            return reading.with_for_update() if lock else reading

        def touch() -> ClauseElement:
            return self.updating(transaction, true(), columns.value)

        if lock and self._dialect.traits.one_writer:  # there only a write locks anything
            query = self.once("touch", transaction, touch).query({KEY: key})
            self.run(transaction, query)
        reading = self.once(f"rows {lock}", transaction, statement)
        found = self.rows(transaction, reading, key)
        if len({number for number, _, _ in found}) < len(found):
            raise self._not_one(key, "are there")
        return [(number, value, seen) for number, value, seen in found]

    # --- changing ----------------------------------------------------------------------------

    def repeated(self, transaction: BorrowedTransaction, change: Callable[[], T]) -> T:
        """Make a change. If a deadlock undoes it, and the driver knows that the user's transaction
        had no statement before, begin the transaction again: no other work is lost.

        MariaDB's drivers do not know: with a result set they drop the server's status flags.
        """
        number, start = 0, self._runtime.now()
        while True:
            number += 1
            try:
                return change()
            except DeadlockDetected as error:
                sleep = self.sleep_after(number, start) if transaction.fresh else None
                if sleep is None:
                    raise
                try:
                    transaction.start_over()
                except StatementError:  # the connection broke too
                    raise error from error.__cause__
            self._runtime.sleep(sleep)

    def expire(self, session: Borrowable, key: Any) -> None:
        self.columns.expire(session, [(key, number) for number in range(self._stripes)])

    def shift(
        self,
        transaction: BorrowedTransaction,
        key: Any,
        amount: Number,
        least: Number,
        most: Number,
    ) -> bool:
        numbers = self._exact(transaction)
        start = self._start(transaction)
        values = {KEY: key, AMOUNT: amount, LEAST: least, MOST: most, _START: start}
        if least <= most:
            for free in (True, False):
                query = self._shift_one(transaction, numbers, free).query(values)
                changed = self.run(transaction, query).answer
                if changed > 1:
                    raise self._not_one(key, "were changed: roll your transaction back")
                if changed:
                    self._keep(transaction, start)
                    return True
        if amount < 0 and not self._dialect.traits.stale_reads:
            total, seen = self.read(transaction, key, lock=False)
            if total is None or seen < least:
                return False  # found without locking any row
        return self._gather(transaction, key, numbers, amount, least)

    def _shift_one(self, transaction: BorrowedTransaction, numbers: Numbers, free: bool) -> Any:
        """Return the statement that changes one stripe with enough room: the first from ``start``
        on, and then from 0. With ``free`` it skips locked stripes, otherwise it waits for one."""
        columns, stripe = self.columns, self._stripe
        other = columns.table.alias("dblock_one")
        stripes = other.c[stripe.key]

        def chosen(*where: ColumnElement[bool]) -> ColumnElement[Any]:
            # In the order of the primary key, because MariaDB locks every row that it sorts.
            first = (
                select(stripes)
                .where(other.c[columns.key.key] == bindparam(KEY, type_=columns.key.type), *where)
                .order_by(stripes)
                .limit(1)
                .with_for_update(skip_locked=free)
            )
            return self.readable(first).scalar_subquery()

        def statement() -> ClauseElement:
            amount, least, most = (
                bindparam(name, type_=numbers.type) for name in (AMOUNT, LEAST, MOST)
            )
            start = bindparam(_START, type_=stripe.type)

            def room(value: ColumnElement[Any]) -> ColumnElement[bool]:
                return rounded(value, numbers).between(least, most)

            there = room(other.c[columns.value.key])
            # Without a stripe the number is _NONE: for NULL MariaDB would read all rows, and lock
            # them.
            one = func.coalesce(
                chosen(stripes >= start, there), chosen(stripes < start, there), _NONE
            )
            changed = rounded(columns.value + amount, numbers)
            return self.updating(transaction, and_(stripe == one, room(columns.value)), changed)

        return self.once(f"shift {free}", transaction, statement)

    def _gather(
        self,
        transaction: BorrowedTransaction,
        key: Any,
        numbers: Numbers,
        amount: Number,
        least: Number,
    ) -> bool:
        """Change the sum with all stripes locked, and even them out; False if there is no room."""
        for _ in range(2):  # the second read sees rows inserted while the first one waited
            rows = self._rows(transaction, key, lock=True)
            if not rows or any(seen is None for _, _, seen in rows):
                return False
            total = exact_sum(numbers.exactly("a stripe", seen) for _, _, seen in rows)
            if amount > 0 or total >= least:
                break
        else:
            return False
        return self._even_out(transaction, key, numbers, rows, exact_sum((total, amount)))

    def spread(self, transaction: BorrowedTransaction, key: Any) -> None:
        """Insert the missing rows, and even all out."""
        columns, numbers = self.columns, self._exact(transaction)
        for _ in range(2):  # as in _gather: a transaction that has locked one row then locks all
            rows = self._rows(transaction, key, lock=True)
        if not rows:
            raise self.no_row(key)
        there = {number for number, _, _ in rows}
        missing = [number for number in range(self._stripes) if number not in there]
        if missing:
            names = columns.key.key, self._stripe.key, columns.value.key
            new = [dict(zip(names, (key, number, 0), strict=True)) for number in missing]
            self.write(transaction, insert(columns.table), new)
            rows += [(number, 0, 0) for number in missing]
        if any(seen is None for _, _, seen in rows):
            raise Unsupported(f"{columns.row(key)} is NULL in one of its stripes: set it to 0")
        total = exact_sum(numbers.exactly("a stripe", seen) for _, _, seen in rows)
        if not self._even_out(transaction, key, numbers, rows, total):
            raise OverflowError(f"{columns.row(key)} is {total}: its stripes have no room for that")

    def _even_out(
        self,
        transaction: BorrowedTransaction,
        key: Any,
        numbers: Numbers,
        rows: list[Row],
        total: Number,
    ) -> bool:
        """Split a total evenly over the stripes, which are locked; False if it does not fit.

        Rows beyond the number of stripes are set to 0.
        """
        kept = [row for row in rows if row[0] < self._stripes] or rows
        parts = dict(zip((row[0] for row in kept), even_parts(total, len(kept)), strict=True))
        if max(parts.values()) > numbers.most:
            return False
        stripe = self._stripe

        def statement() -> ClauseElement:
            one = stripe == bindparam(_STRIPE, type_=stripe.type)
            return self.updating(transaction, one, bindparam(NEW, type_=numbers.type))

        setting = self.once("set one", transaction, statement)
        for number, _, seen in rows:
            part = parts.get(number, 0)
            if numbers.exactly("a stripe", seen) != part:
                values = {KEY: key, _STRIPE: number, NEW: part}
                self.run(transaction, setting.query(values))
        return True

    # --- inside ------------------------------------------------------------------------------

    def _exact(self, transaction: BorrowedTransaction) -> Numbers:
        numbers = self.numbers(transaction, self.columns.value)
        if numbers.inexact:
            raise Unsupported(
                f"{self.columns.value} is {numbers}, whose sums depend on their order: "
                "a striped counter counts in an integer column or a NUMERIC"
            )
        return numbers

    def _not_one(self, key: Any, what: str) -> MultipleResultsFound:
        """Return the error for a table whose primary key differs from the metadata's."""
        columns = self.columns
        return MultipleResultsFound(
            f"several rows of {columns.table.name} with {columns.key.name} {key!r} and the same "
            f"{self._stripe.name} {what}; its primary key has to be both columns"
        )

    def _start(self, transaction: BorrowedTransaction) -> int:
        """Return the stripe to begin with: a random one, but the same within a transaction. With a
        second stripe the transaction would wait for others while it has its own stripe locked."""
        transaction_of, start = transaction.connection.info.get(_START, (None, 0))
        if transaction_of is not None and transaction_of() is transaction.root:
            return int(start)
        return int(self._runtime.random() * self._stripes)

    def _keep(self, transaction: BorrowedTransaction, start: int) -> None:
        transaction.connection.info[_START] = weakref.ref(transaction.root), start
