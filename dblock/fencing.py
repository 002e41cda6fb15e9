"""A gate for fences, in a database where dblock's own tables are not.

>>> from dblock.fencing import gate
>>> with locks.lease("report") as lease, warehouse.begin() as connection:       # doctest: +SKIP
...     gate(connection, "report", lease.fence)
...     connection.execute(...)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import BigInteger, Column, MetaData, PrimaryKeyConstraint, Table

from .arguments import check_fence, check_flag, check_identifier, check_name
from .dialects import ADAPTERS, meet
from .errors import DBLockError, SchemaMissing, StaleFence, Unsupported
from .io.runtime import Runtime
from .io.sqlalchemy_transaction import backend_of, borrow
from .io.target import choose
from .policy import Timeouts
from .protocol.commands import Gate
from .protocol.explain import explain, transaction_broken
from .protocol.faults import Fault, StatementError

if TYPE_CHECKING:
    from .dialects import Adapter, Dialect
    from .io.borrowed import Borrowable, Borrowed

__all__ = ["gate", "table"]

_NAME = "dblock_fence"
_RUNTIME = Runtime()

# The sources of transactions whose servers dblock has recognised as real ones, and what they are.
_recognised: WeakKeyDictionary[object, str | None] = WeakKeyDictionary()


class DjangoConnection(Protocol):
    """One of ``django.db.connections``: the attributes that a gate uses."""

    vendor: str
    in_atomic_block: bool


def table(metadata: MetaData, name: str = _NAME, schema: str | None = None) -> Table:
    """Add the table of a :func:`gate` to the MetaData of the database that it is in.

    Alembic's autogenerate then writes the migration that creates it. The table has a row for each
    name: ``name``, and in ``fence`` the largest fence that has passed.
    """
    if not isinstance(metadata, MetaData):
        raise TypeError(
            f"a gate's table is added to a MetaData, not {type(metadata).__name__}: {metadata!r}"
        )
    check_identifier("the name of a gate's table", name)
    if schema is not None:
        check_identifier("schema", schema)

    from .schema.tables import INNODB, NAME  # and with it Alembic

    return Table(
        name,
        metadata,
        Column("name", NAME, nullable=False),
        Column("fence", BigInteger, nullable=False),
        PrimaryKeyConstraint("name", name=f"{name}_pkey"),
        schema=schema,
        **INNODB,
    )


def gate(
    connection: Borrowable | DjangoConnection,
    name: str,
    fence: int,
    *,
    table: Table | None = None,
    trust_server: bool = False,
) -> None:
    """Let the holder with this fence write in the transaction of ``connection``, or refuse it.

    Call it first in the transaction, with ``lease.fence``. If the gate has let a larger fence of
    the same name through, you get StaleFence: roll the transaction back. The same fence may come
    again. No other transaction passes the gate of this name until this one ends. If this one is
    rolled back, the gate has its old fence again.

    ``connection`` is an SQLAlchemy Connection, Session or scoped_session, or one of Django's
    connections in ``transaction.atomic()``, on PostgreSQL, MySQL, MariaDB or SQLite. ``table`` is
    the result of :func:`table`, if you use another name or schema than the default.
    ``trust_server`` is as for :class:`dblock.Locks`. After the first call it takes one round trip,
    on MySQL two.

    Under a stricter isolation level you get Conflict if the gate's row has changed since the
    transaction's snapshot, and DeadlockDetected after a deadlock: run the whole transaction again.
    A wait lasts at most as long as your session's lock timeout; then you get Unavailable, or
    DeadlockDetected if the server undoes the whole transaction (innodb_rollback_on_timeout).
    """
    pass_through(connection, name, fence, table, trust_server, ADAPTERS)


def pass_through(
    on: Borrowable | DjangoConnection,
    name: str,
    fence: int,
    table: Table | None,
    trust_server: bool,
    adapters: Mapping[str, type[Adapter]],
) -> None:
    """Do what :func:`gate` says, through the drivers that ``adapters`` know."""
    check_name(name, "the name of a gate")
    check_fence(fence)
    check_flag("trust_server", trust_server)
    if table is not None and not isinstance(table, Table):
        raise TypeError(
            f"table= is the Table that dblock.fencing.table made, not {type(table).__name__}: "
            f"{table!r}"
        )
    dialect, transaction = _borrow(on, trust_server, adapters)
    parts = (None, _NAME) if table is None else (table.schema, table.name)
    place = ".".join(dialect.quote(part) for part in parts if part)
    query = dialect.query(Gate(place, name, fence))
    try:
        newest = transaction.execute_all(query).answer
    except StatementError as failure:
        if failure.fault is Fault.BUSY and _was_undone(dialect, transaction):
            failure.fault = Fault.DEADLOCK  # to the user it is the same: the transaction is gone
        raise _explained(dialect, failure, name, place) from failure.__cause__
    if newest > fence:
        raise StaleFence(
            f"fence {fence} of {name!r} is stale: fence {newest} has passed, so another process "
            "has held the lock since. Roll this transaction back",
            name=name,
            fence=fence,
            newest=newest,
        )


def _borrow(
    on: Any, trust_server: bool, adapters: Mapping[str, type[Adapter]]
) -> tuple[Dialect, Borrowed]:
    """Return the transaction that ``on`` is in, and the statements of its database."""
    backend = getattr(on, "vendor", None)  # only Django's connections have it
    if backend is None:
        backend = backend_of(on)
    kind, adapter = choose(adapters, backend, "")
    timeouts = Timeouts()
    dialect = kind(None, "dblock_", timeouts, adapter(timeouts, trust_server))
    transaction = borrow(on, dialect, _RUNTIME)
    if trust_server or transaction.source not in _recognised:
        transaction.recognise()
    if trust_server:
        return dialect, transaction
    dialect.adapter.reached = _recognised.setdefault(transaction.source, dialect.adapter.reached)
    meet(dialect)
    return dialect, transaction


def _was_undone(dialect: Dialect, transaction: Borrowed) -> bool:
    """Return whether the server has undone the transaction, because a wait in it was too long."""
    with suppress(StatementError):
        return dialect.adapter.undoes_all(lambda query: transaction.execute(query).answer)
    return False


def _explained(dialect: Dialect, failure: StatementError, name: str, place: str) -> DBLockError:
    match failure.fault:
        case Fault.SCHEMA:
            return SchemaMissing(
                f"the gate's table {place} is missing here: {failure}. Add "
                "dblock.fencing.table(metadata) to the tables of this database, and migrate it; or "
                "give gate() that table, if it is there in another schema"
            )
        case Fault.PRIVILEGE:
            return Unsupported(
                f"the database role lacks rights on the gate's table: {failure}. "
                f"It needs SELECT, INSERT and UPDATE on {place}",
                name=name,
            )
        case Fault.DISCONNECTED:
            return transaction_broken(failure, name)
        case _:
            return explain(dialect, failure, name)
