"""Retrying a statement that is safe to repeat, while a retry may help."""

from __future__ import annotations

from typing import TypeVar

from .commands import Command
from .faults import Fault, StatementError
from .steps import Execute, Procedure, Reply, Sleep

T = TypeVar("T")

# The failed statement changed nothing, and the same statement may succeed in a moment.
PASSING = frozenset(
    {Fault.BUSY, Fault.DEADLOCK, Fault.SERIALIZATION, Fault.ALTERED, Fault.CANCELED}
)
# The same without a cancel, which may have come after a part of the statement was committed.
UNDONE = PASSING - {Fault.CANCELED}
# The next connection may reach a working server: after a failover the old primary is a standby.
AWAY = frozenset({Fault.UNREACHABLE, Fault.DISCONNECTED, Fault.READ_ONLY})
# After these a command has reached no server that could execute it.
UNREACHED = AWAY | {Fault.SETUP}
# After these a statement that is safe to repeat is repeated.
AGAIN = AWAY | PASSING
# Seconds between two tries to reach a database that is away, or a row that is busy.
PAUSE = 0.05


def end_lost(lost: list[Command[bool]], within: float | None = None) -> Procedure[None]:
    """End the sessions that earlier tries of a statement lost, before the next try; do not wait
    until they are gone.

    Raises StatementError if the database is not reached; that counts as the next try, which would
    have failed too. So with a dead server this takes no more time than the try itself.
    """
    while lost:
        try:
            yield Execute(lost[-1], within)
        except StatementError as failure:
            if failure.fault in UNREACHED:
                raise
        lost.pop()


def retry(
    command: Command[T],
    patience: float,
    now: float,
    faults: frozenset[Fault],
    within: float | None = None,
    busy: float = 0.0,
) -> Procedure[Reply[T]]:
    """Execute a statement, and retry it after ``faults`` for up to ``patience`` seconds; after BUSY
    for at least ``busy`` seconds.

    Even with a patience of 0 this replaces a broken connection once, since it may have died while
    it was idle. ``within`` bounds the wait for each reply, as with :class:`Execute`.
    """
    try:
        return (yield Execute(command, within))
    except StatementError as caught:
        failure = caught
    try:  # after the first failure, not in its handler: it is not the cause of the next one
        return (yield from retry_after(failure, command, patience, now, faults, within, busy))
    finally:
        del failure


def retry_after(
    failure: StatementError,
    command: Command[T],
    patience: float,
    start: float,
    faults: frozenset[Fault],
    within: float | None = None,
    busy: float = 0.0,
) -> Procedure[Reply[T]]:
    """Go on as :func:`retry` does after the ``failure`` of the first try, which began at
    ``start``."""
    replaced = False
    lost: list[Command[bool]] = []
    try:
        while True:
            if failure.fault not in faults:
                raise failure
            lost += [] if failure.end is None else [failure.end]
            if failure.fault is Fault.DISCONNECTED and not replaced:
                replaced = True
            else:
                until = start + (max(patience, busy) if failure.fault is Fault.BUSY else patience)
                if failure.now >= until:
                    raise failure
                yield Sleep(min(PAUSE, until - failure.now))
            try:
                yield from end_lost(lost, within)
                return (yield Execute(command, within))
            except StatementError as caught:
                failure = caught
    finally:
        del failure  # its traceback has this frame, and would keep the caller's handle alive
