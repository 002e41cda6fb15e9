"""The faults of a statement: one small set for all databases."""

from __future__ import annotations

from enum import Enum, auto

from ..errors import DBLockError
from .commands import Command


class Fault(Enum):
    """A class of failures that dblock handles in the same way."""

    UNREACHABLE = auto()  # no connection was made: nothing was sent
    DISCONNECTED = auto()  # the connection broke after a statement was sent: outcome unknown
    BUSY = auto()  # a row is locked; only this statement was undone
    DEADLOCK = auto()  # the database chose this transaction as the victim, and undid it
    SERIALIZATION = auto()  # the snapshot is too old; only a new transaction can succeed
    ALTERED = auto()  # a migration changed the table; only a new transaction can succeed
    CANCELED = auto()  # the server canceled the statement: statement_timeout, KILL QUERY
    SCHEMA = auto()  # a table or column is missing
    PRIVILEGE = auto()  # the role lacks a right
    REFUSED = auto()  # the server cannot execute statements now: disk full, out of memory, ...
    READ_ONLY = auto()  # a replica, or a read-only transaction or file
    SETUP = auto()  # dblock itself refused the new connection: the command was not sent


class StatementError(Exception):
    """A classified failure of a step; ``__cause__`` is the driver's own exception.

    ``timed_out`` says that the client stopped waiting. ``misconfigured`` says that no connection is
    possible until an operator changes the URL, the account or the server. ``kind`` is the class of
    the error for the user, if dblock itself refused the connection. ``end`` is the command that
    ends the lost session on the server, as in :class:`~dblock.dialects.adapter.ServerSession`.
    ``now`` is the monotonic time at which the step failed; the code that raises the error sets it,
    in most cases the driver.
    """

    now: float = 0.0

    def __init__(
        self,
        fault: Fault,
        message: str,
        *,
        timed_out: bool = False,
        misconfigured: bool = False,
        kind: type[DBLockError] | None = None,
        end: Command[bool] | None = None,
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.timed_out = timed_out
        self.misconfigured = misconfigured
        self.kind = kind
        self.end = end
