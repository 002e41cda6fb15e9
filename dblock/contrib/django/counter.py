"""Counters on fields of models: dblock's counters, in the atomic block that is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import Error, connections, models, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import Column, MetaData, Table, types
from sqlalchemy.engine import make_url
from sqlalchemy.sql import quoted_name

from ...arguments import check_instance
from ...counters.columns import Columns
from ...counters.counter import Counter
from ...counters.numbers import N, Number, Numbers, check_number
from ...counters.table import CounterTable
from ...io.borrowed import TableTransaction
from ...policy import RetryPolicy
from ...protocol.explain import explain
from ...protocol.faults import StatementError
from .atomic import AtomicBlock, lend
from .drivers import driver_of

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect

    from ...io.core_statement import Compiled
    from ...locks import Locks

T = TypeVar("T")

#: Fields that hold numbers. Fields derived from these count too.
_NUMBERS = (models.IntegerField, models.DecimalField, models.FloatField)
#: By driver: the SQLAlchemy dialect that compiles the statements, if it is not the driver's own.
_WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    # Django lets psycopg put the values into the text. There SQLAlchemy's -2147483648::INTEGER
    # would be the negative of a number that INTEGER does not have.
    "psycopg": ("psycopg2", {}),
    # Django's log fills in names and %s, and no question marks.
    "pysqlite": ("pysqlite", {"paramstyle": "named"}),
}


class ModelCounter:
    """A number in a field of a model, made by :meth:`DjangoLocks.counter`.

    Give the key of a row or a saved instance. The key is the primary key, unless you gave the
    counter another field. An instance in memory does not change: call ``refresh_from_db``.

    Each change is one statement in the atomic block around it. Outside of any block it is a
    separate transaction. Errors are the same as for :class:`dblock.Counter`.
    """

    def __init__(
        self,
        locks_of: Callable[[str], Locks],
        alias: str | None,
        field: Any,
        *,
        key: Any = None,
        version: Any = None,
        floor: Number | None = 0,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._locks_of = locks_of
        self._alias = alias
        self._field = _counted("field", field)
        self._key = _key(self._field, key)
        self._version = None if version is None else _counted("version", version)
        if self._version is not None and self._version.model is not self._field.model:
            raise ValueError(f"{self._field} and {self._version} are not fields of one model")
        if floor is not None:
            check_number("a counter's floor", floor)
        self._floor = floor
        self._retry = None if retry is None else check_instance("retry", retry, RetryPolicy)
        #: By the locks of its database.
        self._made: WeakKeyDictionary[Locks, Counter] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<ModelCounter {self._field} by {self._key.name}>"

    def take(self, key: Any, n: Number = 1, *, idempotency_key: str | None = None) -> bool:
        """Take ``n`` off, or raise NotEnough; see :meth:`dblock.Counter.take`."""

        def take(counter: Counter, on: Any, row: Any) -> bool:
            return counter.take(on, row, n, idempotency_key=idempotency_key)

        return self._run(key, take)

    def add(self, key: Any, n: Number = 1, *, idempotency_key: str | None = None) -> bool:
        """Add ``n``; see :meth:`dblock.Counter.add`."""

        def add(counter: Counter, on: Any, row: Any) -> bool:
            return counter.add(on, row, n, idempotency_key=idempotency_key)

        return self._run(key, add)

    def compare_and_update(self, key: Any, *, seen: Number, new: Number) -> bool:
        """Set it if it is still ``seen``; see :meth:`dblock.Counter.compare_and_update`."""

        def compare(counter: Counter, on: Any, row: Any) -> bool:
            return counter.compare_and_update(on, row, seen=seen, new=new)

        return self._run(key, compare)

    def update(self, key: Any, change: Callable[[Any], N]) -> N:
        """Set it to ``change(value)``; see :meth:`dblock.Counter.update`."""
        return self._run(key, lambda counter, on, row: counter.update(on, row, change))

    def value(self, key: Any) -> Any:
        """Read it. Raises LookupError if there is no such row."""
        return self._run(key, lambda counter, on, row: counter.value(on, row))

    async def atake(self, key: Any, n: Number = 1, *, idempotency_key: str | None = None) -> bool:
        """:meth:`take` in a coroutine."""
        return await sync_to_async(self.take)(key, n, idempotency_key=idempotency_key)

    async def aadd(self, key: Any, n: Number = 1, *, idempotency_key: str | None = None) -> bool:
        """:meth:`add` in a coroutine."""
        return await sync_to_async(self.add)(key, n, idempotency_key=idempotency_key)

    async def acompare_and_update(self, key: Any, *, seen: Number, new: Number) -> bool:
        """:meth:`compare_and_update` in a coroutine."""
        return await sync_to_async(self.compare_and_update)(key, seen=seen, new=new)

    async def aupdate(self, key: Any, change: Callable[[Any], N]) -> N:
        """:meth:`update` in a coroutine. ``change`` runs in Django's thread."""
        return await sync_to_async(self.update)(key, change)

    async def avalue(self, key: Any) -> Any:
        """:meth:`value` in a coroutine."""
        return await sync_to_async(self.value)(key)

    # --- inside ------------------------------------------------------------------------------

    def _run(self, key: Any, do: Callable[[Counter, Any, Any], T]) -> T:
        """Do something to a row's number, in the atomic block or in a transaction of its own."""
        hints = {"instance": key} if isinstance(key, models.Model) else {}
        row = self._key_of(key) if isinstance(key, models.Model) else key
        alias = self._alias or router.db_for_write(self._field.model, **hints)
        locks, wrapper = self._locks_of(alias), connections[alias]
        counter = self._counter(locks, alias)
        if wrapper.in_atomic_block:
            return do(counter, wrapper, row)
        driver = driver_of(wrapper, locks._database.dialect.adapter)
        block = AtomicBlock(wrapper, locks._database.dialect, driver, locks._database.runtime)
        begun = done = False
        try:
            with transaction.atomic(using=alias):
                begun = True
                result = do(counter, wrapper, row)
                done = True
        except Error as error:
            failure = error if begun and not done else block.failure(error)
            if isinstance(failure, StatementError):  # the begin or the commit has failed
                raise explain(locks._database.dialect, failure, harmless=not begun) from error
            raise
        return result

    def _key_of(self, instance: models.Model) -> Any:
        """Return the key of an instance that is in the database."""
        model = self._field.model
        if not isinstance(instance, model):
            raise TypeError(
                f"{self!r} counts for instances of {model.__name__}, not of "
                f"{type(instance).__name__}"
            )
        if instance._state.adding:
            raise ValueError(
                f"{instance!r} is not saved, so it has no row yet: save it, or give its key"
            )
        return getattr(instance, self._key.attname)

    def _counter(self, locks: Locks, alias: str) -> Counter:
        made = self._made.get(locks)
        if made is None:
            fields = (self._field, self._key, *([self._version] if self._version else []))
            value, key, *version = _columns(fields, alias)
            made = self._made[locks] = FieldCounter(
                locks._database,
                WeakKeyDictionary(),
                Columns.of(value, key, version[0] if version else None),
                stripes=None,
                floor=self._floor,
                retry=locks._policy(self._retry),
            )
        return made


class ModelTransaction(AtomicBlock, TableTransaction):
    """An atomic block that a counter's statements run in."""

    @property
    def written_for(self) -> SQLAlchemyDialect:
        return _written_for(self._dialect.name, self.driver.drivers[0])

    def integers(self, field: Any) -> tuple[int, int]:
        """Return the least and the largest integer of a field in this database."""
        least, most = self._wrapper.ops.integer_field_range(field.get_internal_type())
        return least, most

    def rows(self, compiled: Compiled, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        rows, _, kinds = self.send(compiled.query(values))
        return [compiled.convert(row, kinds, self.written_for) for row in rows]


class FieldTable(CounterTable[ModelTransaction]):
    """The statements of a counter, sent as Django sends its own."""

    def borrow(
        self, session: BaseDatabaseWrapper, *, locking: bool = False, changing: bool = True
    ) -> ModelTransaction:
        block = lend(session, self._dialect, self._runtime)
        assert block is not None
        block.recognise()
        return ModelTransaction(session, self._dialect, block.driver, self._runtime)

    def kind(self, transaction: ModelTransaction, column: Column[Any]) -> Numbers:
        """Return the kind by the model's field, from which migrations have made the column."""
        field = column.info["field"]
        made = replace(
            Numbers.of(str(column), column.type, self._dialect.dynamic_types),
            name=f"{field}, a {type(field).__name__}",
        )
        if not isinstance(field, models.IntegerField):
            return made
        least, most = transaction.integers(field)
        return replace(made, least=least, most=most)


class FieldCounter(Counter):
    """A counter in one database of Django's. Its sessions are Django's connections."""

    _table_class = FieldTable


class KeyType(types.TypeDecorator[Any]):
    """A key as its field writes it."""

    impl = types.NullType
    cache_ok = False

    def __init__(self, field: Any, alias: str) -> None:
        super().__init__()
        self._field, self._alias = field, alias

    def process_bind_param(self, value: Any, dialect: SQLAlchemyDialect) -> Any:
        return self._field.get_db_prep_value(value, connections[self._alias])


@lru_cache
def _written_for(database: str, driver: str) -> SQLAlchemyDialect:
    name, options = _WRITTEN.get(driver, (driver, {}))
    return make_url(f"{database}+{name}://").get_dialect()(**options)


def _columns(fields: Sequence[Any], alias: str) -> list[Column[Any]]:
    """Return a model's fields, of which the second is the key, as columns of its table."""
    value, key, *_ = fields
    columns = []
    for field in fields:
        kind = KeyType(field, alias) if field is key else _type(field)
        columns.append(Column(quoted_name(field.column, True), kind, info={"field": field}))
    *schema, name = value.model._meta.db_table.replace("`", '"').strip('"').split('"."')
    schema_name = quoted_name(schema[0], True) if schema else None
    Table(quoted_name(name, True), MetaData(), *columns, schema=schema_name)
    return columns


def _type(field: Any) -> types.TypeEngine[Any]:
    if isinstance(field, models.DecimalField):
        return types.Numeric(field.max_digits, field.decimal_places)
    return types.BigInteger() if isinstance(field, models.IntegerField) else types.Double()


def _field(what: str, given: Any) -> Any:
    """Return a field of a model, from itself or from the attribute that the model has of it."""
    found = getattr(given, "field", given)
    if not isinstance(found, models.Field):
        raise TypeError(
            f"a counter's {what} is a field of a model, as Product.stock, not "
            f"{type(given).__name__}: {given!r}"
        )
    if found.model._meta.abstract:
        raise ValueError(f"{found} is of an abstract model, which has no table")
    return found


def _counted(what: str, given: Any) -> Any:
    found = _field(what, given)
    if isinstance(found, models.GeneratedField):
        raise TypeError(f"the database computes {found}: count in what it is computed from")
    if not isinstance(found, _NUMBERS):
        raise TypeError(
            f"a counter's {what} is an IntegerField, a DecimalField, a FloatField or one made from "
            f"these; {found} is a {type(found).__name__}"
        )
    if found.primary_key:
        raise ValueError(f"{found} is the primary key, which finds the row: count in another field")
    return found


def _key(counted: Any, given: Any) -> Any:
    """Return the field that finds a counter's row."""
    meta = counted.model._meta
    found = meta.pk if given is None else _field("key", given)
    if found.model is not counted.model:
        raise ValueError(f"{counted} and {found} are not fields of one model")
    if found.column is None:
        raise ValueError(
            f"{counted.model.__name__} has a primary key of several fields: give key=, a field "
            "that is unique by itself"
        )
    alone = [constraint.fields for constraint in meta.total_unique_constraints]
    if not found.unique and (found.name,) not in alone:
        raise ValueError(
            f"{found} is not unique, and a counter counts in one row: give a field with "
            "unique=True, or leave key= out for the primary key"
        )
    return found
