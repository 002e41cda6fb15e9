"""What can go wrong with a statement, as one small set for all databases."""

from __future__ import annotations

from enum import Enum, auto

from .steps import Query


class Fault(Enum):
    """A database's error code, reduced to what has to be done about it."""

    UNREACHABLE = auto()  # no connection was made: nothing was sent
    DISCONNECTED = auto()  # the connection broke after something was sent: the outcome is open
    BUSY = auto()  # a row is locked; only this statement was undone
    DEADLOCK = auto()  # this side of a cycle was chosen; the transaction is undone
    SERIALIZATION = auto()  # the snapshot is too old; only a new transaction can succeed
    ALTERED = auto()  # a migration changed the table; only a new transaction can succeed
    CANCELED = auto()  # the server gave the statement up: statement_timeout, KILL QUERY
    SCHEMA = auto()  # a table or column is not there
    PRIVILEGE = auto()  # the role may not
    REFUSED = auto()  # the server cannot do anything now: disk full, out of memory, ...
    READ_ONLY = auto()  # a replica, or a read-only transaction or file


class StatementError(Exception):
    """A classified failure of a step; ``__cause__`` is the driver's own exception.

    ``timed_out`` tells that the client gave up. ``misconfigured`` tells of a connection that cannot
    be made before somebody changes the URL, the account or the server. ``end`` is the statement
    that ends what the lost session may still do on the server, as in
    :class:`~dblock.dialects.adapter.ServerSession`.
    """

    def __init__(
        self,
        fault: Fault,
        message: str,
        *,
        timed_out: bool = False,
        misconfigured: bool = False,
        end: Query[bool] | None = None,
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.timed_out = timed_out
        self.misconfigured = misconfigured
        self.end = end
