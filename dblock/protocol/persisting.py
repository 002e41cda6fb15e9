"""Repeating a statement that is safe to repeat, while that may help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .faults import Fault, Trouble
from .steps import Protocol, Query, Reply, Run, Sleep
from .troubles import explain

if TYPE_CHECKING:
    from .statements import Statements

# Nothing was done, and the same statement may well succeed in a moment.
PASSING = frozenset({Fault.BUSY, Fault.DEADLOCK, Fault.SERIALIZATION, Fault.CANCELED})
# And nobody cut it off, whichever part of it was run then.
UNDONE = PASSING - {Fault.CANCELED}
# Another connection may well do: after a failover the old primary is a standby.
AWAY = frozenset({Fault.UNREACHABLE, Fault.DISCONNECTED, Fault.READ_ONLY})
# Between two tries to reach a database that is away, or a row that is busy.
PAUSE = 0.05


def end_lost(lost: list[Query[bool]], within: float | None = None) -> Protocol[None]:
    """End the sessions that earlier tries of a statement lost, before the next; wait for nothing.

    Raises Trouble where the database is not reached: that try is spent then, for it would have
    fared no better. So ending them takes no time that a dead server would not have taken anyway.
    """
    while lost:
        try:
            yield Run(lost[-1], within)
        except Trouble as trouble:
            if trouble.fault in AWAY:
                raise
        lost.pop()


def persist(
    query: Query[Any],
    patience: float,
    now: float,
    faults: frozenset[Fault] | set[Fault],
    within: float | None = None,
) -> Protocol[Reply]:
    """Run a statement that is safe to repeat after ``faults``, for up to ``patience`` seconds.

    However short that is, a connection that had died while idle is replaced once. ``within`` is
    for each answer, as with :class:`Run`.
    """
    until, replaced = now + patience, False
    lost: list[Query[bool]] = []
    while True:
        try:
            yield from end_lost(lost, within)
            return (yield Run(query, within))
        except Trouble as trouble:
            if trouble.fault not in faults:
                raise
            lost += [] if trouble.end is None else [trouble.end]
            if trouble.fault is Fault.DISCONNECTED and not replaced:
                replaced = True
                continue
            now = (yield Sleep(0)).now  # the try itself took its time
            if now >= until:
                raise
        now = (yield Sleep(min(PAUSE, until - now))).now


def insist(
    dialect: Statements, query: Query[Any], name: str | None, patience: float, now: float
) -> Protocol[Reply]:
    """Run a statement that is always safe to repeat, and explain why it could not be."""
    try:
        return (yield from persist(query, patience, now, AWAY | PASSING))
    except Trouble as trouble:
        raise explain(dialect, trouble, name, harmless=True) from trouble.__cause__
