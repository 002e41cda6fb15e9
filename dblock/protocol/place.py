"""Whether a user's transaction uses the expected tables: a lock in any other set protects nothing.

::

    a statement in the user's transaction ── matched a row ──> it uses our tables
        └── no row, or no table: read the place there ── our tables ──> refused for another reason
                └── others: read our place again ── recreated or moved ──> try again
                        └── unchanged ──> refused: the error names both places

A lock's own statement has the tables' identity as a condition, so the check costs no round trip. It
qualifies the tables' names with their real place, so no ``search_path`` or ``USE`` changes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Conflict, SchemaMissing, Unsupported
from .commands import Command, LookAround
from .exchange import Exchange
from .explain import explain, schema_missing, transaction_broken
from .faults import Fault, StatementError
from .schema_version import SCHEMA_VERSION
from .steps import ExecuteInTransaction, Procedure, Reply

if TYPE_CHECKING:
    from .dialect import AbstractDialect
    from .state import Found, Place

T = TypeVar("T")

# The faults of a row that is in use, after which a try in the user's transaction may be repeated.
IN_USE = frozenset({Fault.BUSY, Fault.CANCELED})
# Characters that a schema's name must not have: their quoting depends on the session's settings.
_UNQUOTABLE = frozenset("'\"`%\\")


def settle(dialect: AbstractDialect, found: Found) -> None:
    """Record the tables' place. Raises SchemaMissing for tables of another version."""
    version, place = found
    if version.version > SCHEMA_VERSION:
        raise SchemaMissing(
            f"dblock's tables here have version {version.version}, newer than this code's "
            f"{SCHEMA_VERSION}: upgrade dblock (pip install -U dblock)"
        )
    if place is None and version.revision == 0 and dialect.traits.has_witness:
        raise Unsupported(
            "dblock's tables are here, but this role sees no rows of them: row level security "
            "hides them. Disable it, ALTER TABLE ... DISABLE ROW LEVEL SECURITY, or let the role "
            "pass, CREATE POLICY dblock ON ... TO <role> USING (true). dblock doctor names them"
        )
    if version.revision < SCHEMA_VERSION:
        raise schema_missing(
            dialect, f"they have version {version.revision}, this code needs {SCHEMA_VERSION}"
        )
    if place is None:
        raise schema_missing(dialect, "the table of their version has no identity")
    if not _UNQUOTABLE.isdisjoint(place.schema):
        raise Unsupported(
            f"dblock's tables are in the schema {place.schema!r}: the name of their schema or "
            "database cannot have quotes, percent signs or backslashes"
        )
    if place != dialect.place:
        dialect.settle(place)


def locate(
    exchange: Exchange, *, alone: bool = False, patience: float | None = None
) -> Procedure[None]:
    """Read and record the tables' place on a connection of dblock's own; if ``alone``, in the
    user's transaction: no other connection can reach its database, which is in memory."""
    command = LookAround(alone)
    if alone:
        found = yield from _read_there(exchange, command)
    else:
        found = (yield from exchange.ask_or_explain(command, patience=patience)).answer
    settle(exchange.dialect, found)


def in_transaction(
    exchange: Exchange, step: ExecuteInTransaction, refusals: frozenset[Fault] = frozenset()
) -> Procedure[Reply[Any]]:
    """Perform a step in the user's transaction, or raise the error for its failure.

    For a fault in ``refusals`` it raises the StatementError, and the caller handles that.
    """
    try:
        reply: Reply[Any] = yield step
    except StatementError as failure:
        exchange.now = failure.now
        if failure.fault in refusals:
            raise
        raise explain_borrowed(
            exchange.dialect, failure, exchange.name or None
        ) from failure.__cause__
    exchange.now = reply.now
    return reply


def check(exchange: Exchange, *, patience: float | None = None) -> Procedure[bool]:
    """Check whether a statement in the user's transaction matched nothing because it used other
    tables, and raise ValueError then. True if the caller should try again."""
    dialect = exchange.dialect
    before = dialect.place
    if before is None:
        yield from locate(exchange, patience=patience)
        return True
    there = (yield from _read_there(exchange, LookAround(borrowed=True))).place
    if there is not None and there.mark == before.mark:
        yield from _refuse_hidden(exchange)
        return False
    yield from locate(exchange, patience=patience)
    found = dialect.place
    if found is None or (found.mark, found.schema) != (before.mark, before.schema):
        return True  # the tables were recreated or moved
    former = dialect.former_place
    if there is not None and former is not None and there.mark == former.mark:
        raise Conflict(
            "dblock's tables were made or upgraded after this transaction's snapshot was taken. "
            "Retry the whole transaction",
            name=exchange.name,
        )
    raise elsewhere(before, there)


def _read_there(exchange: Exchange, command: Command[T]) -> Procedure[T]:
    """Execute a command in the user's transaction, and return its answer."""
    answer: T = (yield from in_transaction(exchange, ExecuteInTransaction(command))).answer
    return answer


def _refuse_hidden(exchange: Exchange) -> Procedure[None]:
    for command in exchange.dialect.hidden():
        hidden = yield from _read_there(exchange, command)
        if hidden is not None:
            raise ValueError(
                f"nothing can be locked in this transaction: a temporary table of its session "
                f"hides {hidden}. Drop the temporary table, or give it another name"
            )


def elsewhere(place: Place, there: Place | str | None) -> ValueError:
    """Return the error for a transaction that does not use the expected tables."""
    other = "where no such tables are" if there is None else f"in {there}"
    if str(there) == str(place):
        other += ", but in other tables: a copy of them, or on another server"
    return ValueError(
        f"these locks are in {place}; the transaction is {other}. A lock lives in the database of "
        "its transaction: give a connection to the database of the locks, or make the Locks with "
        "the engine of the transaction"
    )


def explain_borrowed(
    dialect: AbstractDialect, failure: StatementError, name: str | None = None
) -> Exception:
    """Return the error for a failure in the user's transaction."""
    if failure.fault is Fault.DISCONNECTED:
        return transaction_broken(failure, name)
    if failure.fault is Fault.SCHEMA and dialect.place is not None:
        return elsewhere(dialect.place, f"another database ({failure})")
    return explain(dialect, failure, name)
