"""Repeating a statement that is safe to repeat, while that may help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .explain import explain
from .faults import Fault, StatementError
from .steps import Execute, Procedure, Query, Reply, Sleep

if TYPE_CHECKING:
    from .statements import Statements

T = TypeVar("T")

# Nothing was done, and the same statement may well succeed in a moment.
PASSING = frozenset(
    {Fault.BUSY, Fault.DEADLOCK, Fault.SERIALIZATION, Fault.ALTERED, Fault.CANCELED}
)
# And nobody cut it off, whichever part of it was run then.
UNDONE = PASSING - {Fault.CANCELED}
# Another connection may well do: after a failover the old primary is a standby.
AWAY = frozenset({Fault.UNREACHABLE, Fault.DISCONNECTED, Fault.READ_ONLY})
# Between two tries to reach a database that is away, or a row that is busy.
PAUSE = 0.05


def end_lost(lost: list[Query[bool]], within: float | None = None) -> Procedure[None]:
    """End the sessions that earlier tries of a statement lost, before the next; wait for nothing.

    Raises StatementError where the database is not reached: that try is spent then, for it would
    have fared no better. So ending them takes no time that a dead server would not have taken
    anyway.
    """
    while lost:
        try:
            yield Execute(lost[-1], within)
        except StatementError as failure:
            if failure.fault in AWAY:
                raise
        lost.pop()


def retry(
    query: Query[Any],
    patience: float,
    now: float,
    faults: frozenset[Fault] | set[Fault],
    within: float | None = None,
    busy: float = 0.0,
) -> Procedure[Reply]:
    """Execute a statement that is safe to repeat after ``faults``, for up to ``patience`` seconds,
    and for ``busy`` at least while a row or a file is in use.

    However short that is, a connection that had died while idle is replaced once. ``within`` is
    for each answer, as with :class:`Execute`.
    """
    start, replaced = now, False
    lost: list[Query[bool]] = []
    while True:
        try:
            if lost:
                yield from end_lost(lost, within)
            return (yield Execute(query, within))
        except StatementError as failure:
            if failure.fault not in faults:
                raise
            lost += [] if failure.end is None else [failure.end]
            if failure.fault is Fault.DISCONNECTED and not replaced:
                replaced = True
                continue
            until = start + (max(patience, busy) if failure.fault is Fault.BUSY else patience)
            now = (yield Sleep(0)).now  # the try itself took its time
            if now >= until:
                raise
        now = (yield Sleep(min(PAUSE, until - now))).now


def read(dialect: Statements, query: Query[T], name: str | None, start: float) -> Procedure[T]:
    """Execute a statement that only looks, and return what it read, or explain why it could not.

    What is in use, as a file that somebody writes to, is waited for as long as for any statement,
    from ``start``. All else is told at once, also that the database is away.
    """
    try:
        reply = yield from retry(query, 0.0, start, AWAY | PASSING, busy=dialect.timeouts.query)
    except StatementError as failure:
        raise explain(dialect, failure, name, harmless=True) from failure.__cause__
    return query.read(reply)


def retry_or_raise(
    dialect: Statements, query: Query[Any], name: str | None, patience: float, now: float
) -> Procedure[Reply]:
    """Execute a statement that is always safe to repeat, and explain why it could not be."""
    try:
        return (yield from retry(query, patience, now, AWAY | PASSING))
    except StatementError as failure:
        raise explain(dialect, failure, name, harmless=True) from failure.__cause__


def delete_all(
    dialect: Statements, some: Query[int], patience: float, now: float
) -> Procedure[int]:
    """Repeat a statement that deletes some rows until there are none left; return how many."""
    count = 0
    while True:
        reply = yield from retry_or_raise(dialect, some, None, patience, now)
        if not reply.matched:
            return count
        now, count = reply.now, count + reply.matched
