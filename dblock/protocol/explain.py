"""From a fault to the user's error: what happened, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import (
    Conflict,
    ConnectTimeout,
    DBLockError,
    DeadlockDetected,
    Misconfigured,
    OutcomeUnknown,
    QueryTimeout,
    SchemaMissing,
    SocketTimeout,
    Unavailable,
    Unsupported,
)
from .faults import Fault, StatementError

if TYPE_CHECKING:
    from .dialect import AbstractDialect


def explain(
    dialect: AbstractDialect,
    failure: StatementError,
    name: str | None = None,
    *,
    harmless: bool = False,
) -> DBLockError:
    """Return the error for ``failure``.

    ``harmless`` says that it makes no difference whether the server executed the statement.
    """
    said = str(failure)
    match failure.fault:
        case Fault.UNREACHABLE if failure.misconfigured:
            return misconfigured(said, name)
        case Fault.UNREACHABLE:
            kind = ConnectTimeout if failure.timed_out else Unavailable
            return kind(f"the database was not reached: {said}", name=name)
        case Fault.DISCONNECTED if harmless:
            kind = SocketTimeout if failure.timed_out else Unavailable
            return kind(f"the connection to the database broke: {said}", name=name)
        case Fault.REFUSED:
            return Unavailable(f"the database could not serve: {said}", name=name)
        case Fault.DISCONNECTED:
            return unknown(said, name)
        case Fault.SETUP:
            assert failure.kind is not None, "dblock says why it refuses a connection"
            return failure.kind(said, name=name)
        case Fault.SCHEMA:
            return schema_missing(dialect, said)
        case Fault.PRIVILEGE:
            return Unsupported(
                f"the database role lacks rights on dblock's tables: {said}. "
                f"It needs: {' '.join(dialect.privileges('<role>'))}",
                name=name,
            )
        case Fault.READ_ONLY:
            return Unavailable(
                f"this server takes no writes: {said}. It may be a replica, a cluster's node "
                "without the majority, or read-only by default. Locks need a server that can "
                "write; dblock doctor tells what it is",
                name=name,
            )
        case Fault.DEADLOCK:
            return DeadlockDetected(
                f"the database broke a deadlock by undoing this transaction: {said}. "
                "Retry the whole transaction",
                name=name,
            )
        case Fault.SERIALIZATION:
            return Conflict(
                f"the row was changed after this transaction's snapshot was taken: {said}. "
                "Retry the whole transaction, and take the lock first in it",
                name=name,
            )
        case Fault.ALTERED:
            return Conflict(
                "a migration changed the table after this connection had prepared a statement for "
                f"it: {said}. Retry the whole transaction",
                name=name,
            )
        case Fault.BUSY | Fault.CANCELED:
            kind = QueryTimeout if failure.fault is Fault.CANCELED else Unavailable
            return kind(
                f"the server gave the statement up, because its row or file was in use: {said}",
                name=name,
            )


def misconfigured(said: str, name: str | None = None) -> Misconfigured:
    """Return the error for a database to which dblock cannot connect as configured."""
    return Misconfigured(
        f"dblock cannot connect to the database as it is set up: {said}", name=name
    )


def unknown(said: object, name: str | None = None) -> OutcomeUnknown:
    """Return the error for a statement that the server may have executed, or may still execute."""
    return OutcomeUnknown(
        "the reply to a statement was lost, and dblock could not find out what the statement did: "
        f"{said}",
        name=name,
    )


def transaction_broken(failure: StatementError, name: str | None = None) -> Unavailable:
    """Return the error for a user's transaction that ended with its connection."""
    kind = SocketTimeout if failure.timed_out else Unavailable
    return kind(
        f"the transaction's connection broke, and with it the transaction: {failure}", name=name
    )


def schema_missing(dialect: AbstractDialect, said: str) -> SchemaMissing:
    options = f" --schema {dialect.schema}" if dialect.schema else ""
    options += f" --prefix {dialect.prefix}" if dialect.prefix != "dblock_" else ""
    command = dialect.upgraded_by or f"dblock upgrade --url <URL>{options}"
    return SchemaMissing(
        f"dblock's tables are missing here, or older than this code: {said}. "
        f"Create or upgrade them with `{command}`"
    )
