"""Counters in the user's own tables: nothing is held, the statement itself decides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from sqlalchemy.types import TypeDecorator

from ..arguments import check_name
from ..errors import Conflict, NotEnough, Unsupported
from ..events import Kind, tell
from ..protocol.commands import Unapply
from .columns import Columns
from .numbers import N, Number, Numbers, check_number
from .stripes import StripedTable, check_stripes
from .table import CounterTable, SessionTable, Types

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..io.borrowed import Borrowable, TableTransaction
    from ..policy import RetryPolicy

# Seconds after a lost race for which updates lock the row first: they would lose races too.
HOT = 1.0
# The number of amounts whose room is cached: most counters are changed by few different amounts.
AMOUNTS = 64

#: A column's numbers, the amount, and the least and the most value that may be changed by it.
Room = tuple[Numbers, Number, Number, Number]


class Counter:
    """A number in a row of one of your tables, made by :meth:`Locks.counter`.

    All methods run in the transaction of the session or connection that you give them, and commit
    with it. Each change is one atomic statement, so there is nothing to hold and nothing to expire.

    dblock reads once, from the database, which numbers the column can hold exactly. An integer
    column takes whole amounts, a NUMERIC(12, 2) takes amounts with two decimals. Any other amount
    raises ValueError. If the column has no room for the result, you get OverflowError. Both change
    nothing, and your transaction stays usable. A floating point column counts only as exactly as
    such numbers can; :meth:`update` and :meth:`compare_and_update` need a version column for it. If
    the column is NULL, or a trigger or a policy prevents the change of the row, you get
    Unsupported.

    If the whole transaction has to run again, you get Conflict or DeadlockDetected. After a mere
    lock wait timeout dblock tries again, by the retry policy.
    """

    #: The class that makes its statements; subclasses override it.
    _table_class: type[CounterTable[Any]] = SessionTable

    def __init__(
        self,
        database: Database,
        types: Types,
        columns: Columns,
        *,
        stripes: int | None,
        floor: Number | None,
        retry: RetryPolicy,
    ) -> None:
        if floor is not None:
            check_number("a counter's floor", floor)
        self._floor = floor
        self._columns = columns
        self._stripes: StripedTable | None = None
        if stripes is None:
            self._columns.check_unique()
        else:
            check_stripes(self._columns, stripes, floor)
            self._stripes = StripedTable(database, types, self._columns, retry, stripes)
        self._table: CounterTable[Any] = self._stripes or self._table_class(
            database, types, self._columns, retry
        )
        self._dialect = database.dialect
        self._runtime = database.runtime
        self._retry = retry
        self._hot_until = 0.0
        self._rooms: dict[tuple[type[Any], Any, int], Room] = {}

    def __repr__(self) -> str:
        return f"<Counter {self._columns}>"

    def take(
        self, session: Borrowable, key: Any, n: Number = 1, *, idempotency_key: str | None = None
    ) -> bool:
        """Take ``n`` off; raise NotEnough, changing nothing, if that would go below the floor.

        One round trip. With an ``idempotency_key`` you can safely repeat it after a lost reply or a
        commit of unknown outcome: dblock applies each key once, and a repetition changes nothing
        and returns False. dblock records only the key, not the change. So give each change its own
        key, in an order of several lines ``f"{order}:{line}"``.
        """
        return self._change(session, key, n, -1, idempotency_key)

    def add(
        self, session: Borrowable, key: Any, n: Number = 1, *, idempotency_key: str | None = None
    ) -> bool:
        """Add ``n``. It works like :meth:`take`, but does not check the floor."""
        return self._change(session, key, n, 1, idempotency_key)

    def compare_and_update(
        self, session: Borrowable, key: Any, *, seen: Number, new: Number
    ) -> bool:
        """Set the counter to ``new`` if it is still ``seen``; False if not. One round trip.

        Without a version column ``seen`` is the value that you read. Then a change there and back
        in the meantime goes unnoticed. With a version column ``seen`` is the version that you read.
        """
        check_number("the value that was seen", seen)
        check_number("the new value", new)
        self._check_one_row()
        transaction = self._table.borrow(session)
        self._check_comparable(transaction)
        if self._columns.version is None:
            seen = self._table.exactly(transaction, "the value that was seen", seen)
        matched = self._set(transaction, key, seen, new)
        if not matched:
            self._table.check_one_row(transaction, key)
        self._table.expire(session, key)
        return matched

    def update(self, session: Borrowable, key: Any, change: Callable[[Any], N]) -> N:
        """Set the counter to ``change(value)``; return the new value.

        It reads the value, calls ``change``, and sets the result if no other transaction has
        changed the number in between. Otherwise it tries again, by the retry policy. After a lost
        race this process locks the row before it reads it, for one second: on a hot row most races
        are lost, and some callers would lose all of them.

        Raises Conflict if the policy's tries are used up, or if this transaction's snapshot can
        never see the newer value.
        """
        self._check_one_row()
        transaction = self._table.borrow(session)
        self._check_comparable(transaction)
        start, number = self._runtime.now(), 0
        while True:
            number += 1
            lock = number > 1 or self._runtime.now() < self._hot_until
            value, seen = self._table.read(transaction, key, lock=lock, to_compare=True)
            if value is None or seen is None:
                raise self._is_null(key, value)
            new = change(value)
            if self._set(transaction, key, seen, new):
                self._table.expire(session, key)
                return new
            self._hot_until = self._runtime.now() + HOT
            elapsed = self._runtime.now() - start
            tell(Kind.CONFLICT, "optimistic", str(self._columns.value), elapsed)
            sleep = self._retry.sleep_after(
                str(self), number, elapsed, None, most=0.0 if number == 1 else inf
            )
            if sleep is None:
                between = (
                    "the read and the update"
                    if number == 1
                    else f"each of {number} reads and updates"
                )
                raise Conflict(f"{self._columns.row(key)} was changed by others between {between}")
            if sleep:
                self._runtime.sleep(sleep)

    def value(self, session: Borrowable, key: Any) -> Any:
        """Read the counter. Raises LookupError if there is no such row."""
        return self._table.read(self._table.borrow(session, changing=False), key, lock=False)[0]

    def spread(self, session: Borrowable, key: Any) -> None:
        """Spread a key's number over as many rows as there are stripes, in equal parts.

        Call it once, when there is one row, and again when you have changed ``stripes``. It waits
        for transactions that are changing the number. Raises LookupError if there is no row yet.
        """
        if self._stripes is None:
            raise Unsupported(f"{self!r} has one row: spread() is for a counter with stripes=")
        transaction = self._table.borrow(session, locking=True)
        self._stripes.spread(transaction, key)
        self._table.expire(session, key)

    # --- inside ------------------------------------------------------------------------------

    def _change(
        self, session: Borrowable, key: Any, n: Number, sign: int, idempotency_key: str | None
    ) -> bool:
        check_number("an amount", n)
        if n <= 0:
            raise ValueError(f"an amount is above 0: {n!r}")
        if idempotency_key is not None:
            check_name(idempotency_key, "an idempotency key")
        table = self._table
        locking = table.several or idempotency_key is not None
        transaction = table.borrow(session, locking=locking)
        change = partial(self._change_in, transaction, key, n, sign, idempotency_key)
        changed = table.repeated(transaction, change)
        if changed:
            table.expire(session, key)
        return changed

    def _change_in(
        self,
        transaction: TableTransaction,
        key: Any,
        n: Number,
        sign: int,
        idempotency_key: str | None,
        *,
        locked: bool = False,
    ) -> bool:
        dialect, table = self._dialect, self._table
        numbers, amount, least, most = self._room(transaction, n, sign)
        # The key is recorded first, so that a repetition in another transaction waits for the end
        # of this one here.
        if idempotency_key is not None and not table.record(transaction, idempotency_key):
            return False
        try:
            changed = table.shift(transaction, key, amount, least, most)
        except Exception:
            if idempotency_key is not None and not dialect.traits.failure_aborts:
                with contextlib.suppress(Exception):  # it fails if the transaction is undone
                    table.run(transaction, dialect.query(Unapply(idempotency_key)))
            raise
        if not changed:
            if idempotency_key is not None:
                table.run(transaction, dialect.query(Unapply(idempotency_key)))
            refusal = self._refusal(transaction, key, n, sign, numbers, least, most)
            if refusal is not None:
                raise refusal
            # There is room by now: another transaction has made room meanwhile, or the database
            # prevents the change of this row. If a try on the locked row fails too, the database
            # prevents it.
            if locked or not self._lock(transaction, key):
                raise self._is_kept(key)
            return self._change_in(transaction, key, n, sign, idempotency_key, locked=True)
        return True

    def _room(self, transaction: TableTransaction, n: Number, sign: int) -> Room:
        """Return the room for an amount to be added or taken off."""
        try:
            found = self._rooms.get((type(n), n, sign))
        except TypeError:  # `n` is not hashable
            return self._find_room(transaction, n, sign)
        if found is None:
            found = self._find_room(transaction, n, sign)
            # A user's TypeDecorator may convert the same amount differently next time.
            decorated = isinstance(self._columns.value.type, TypeDecorator)
            if not decorated and len(self._rooms) < AMOUNTS:
                self._rooms[type(n), n, sign] = found
        return found

    def _find_room(self, transaction: TableTransaction, n: Number, sign: int) -> Room:
        numbers = self._table.numbers(transaction, self._columns.value)
        amount = sign * self._table.exactly(transaction, "an amount", n)
        floor = None
        if sign < 0 and self._floor is not None and self._floor > numbers.least:
            floor = self._table.exactly(transaction, "a counter's floor", self._floor)
        return numbers, amount, *numbers.room(amount, floor)

    def _refusal(
        self,
        transaction: TableTransaction,
        key: Any,
        n: Number,
        sign: int,
        numbers: Numbers,
        least: Number,
        most: Number,
    ) -> Exception | None:
        """Return why a change was refused; None if there is room for it by now."""
        table, columns = self._table, self._columns
        value, version = table.read(transaction, key, lock=self._dialect.traits.stale_reads)
        if value is None or version is None:
            return self._is_null(key, value)
        full = columns.version is not None and version >= (
            table.numbers(transaction, columns.version).most
        )
        as_it_is = not numbers.rounded and not isinstance(columns.value.type, TypeDecorator)
        if self._stripes is None and as_it_is and not full and _between(least, value, most):
            return None
        what = f"{columns.row(key)} is {value}: changing it by {sign * n} would leave "
        if numbers.digits is not None and abs(value) > n * 2 ** (numbers.digits - 1):
            return OverflowError(f"{what}it as it is, with the digits that {numbers} has")
        if full:
            return OverflowError(f"{what}no room for {columns.version} after {version}")
        if sign > 0:
            return OverflowError(f"{what}more than {numbers.most}, the most in {numbers}")
        if self._floor is None or self._floor <= numbers.least:
            known = numbers.whole and not isinstance(columns.value.type, TypeDecorator)
            return NotEnough(
                f"{what}less than {numbers.least}, the least in {numbers}",
                available=value - numbers.least if known else None,
            )
        floor = float(self._floor) if isinstance(value, float) else self._floor
        return NotEnough(f"{what}less than {self._floor}", available=value - floor)

    def _lock(self, transaction: TableTransaction, key: Any) -> bool:
        """Lock the row; False if there is none that this role may lock."""
        try:
            self._table.read(transaction, key, lock=True)
        except LookupError:
            return False
        return True

    def _is_kept(self, key: Any) -> Unsupported:
        return Unsupported(
            f"{self._columns.row(key)} has room for the change, but the database did not make it: "
            f"a policy of row level security, a trigger or a rule of {self._columns.table.name} "
            "keeps this role from changing the row"
        )

    def _is_null(self, key: Any, value: Any) -> Unsupported:
        column = self._columns.value if value is None else self._columns.version
        return Unsupported(
            f"{column} of {self._columns.key.name} {key!r} is NULL, so a counter cannot change "
            "it: set it to a number, and make the column NOT NULL"
        )

    def _check_one_row(self) -> None:
        if self._stripes is not None:
            raise Unsupported(
                f"{self!r} is striped, so there is no one row to compare and set: take and add work"
            )

    def _check_comparable(self, transaction: TableTransaction) -> None:
        """Refuse numbers that may be rounded when they are read."""
        numbers = self._table.numbers(transaction, self._columns.value)
        if self._columns.version is None and numbers.inexact:
            raise Unsupported(
                f"{self._columns.value} is {numbers}, and a value that you read there may not "
                "compare equal later: give the counter a version column, or make the column a "
                "NUMERIC with decimals; take and add work"
            )

    def _set(self, transaction: TableTransaction, key: Any, seen: Number, new: Number) -> bool:
        new = self._table.exactly(transaction, "the new value", new)
        version = self._columns.version
        numbers = self._table.numbers(transaction, self._columns.compared)
        if version is None:
            seen = numbers.exactly("the value that was seen", seen)
        else:
            seen = numbers.exactly("the version that was seen", seen)
            if seen >= numbers.most:
                raise OverflowError(f"there is no room for {version} after {seen}")
        return self._table.set(transaction, key, seen, new)


def _between(least: Number, value: object, most: Number) -> bool:
    """Whether a value that was read is a number in a range; NaN is in none."""
    return isinstance(value, Number) and value == value and least <= value <= most
