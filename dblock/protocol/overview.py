"""The state of names for users: the holder, the waiters, the job's run, the row lock.

Each part is a plain read. It waits for no lock, except for the lock of a file while another
transaction writes to the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import DBLockError, Unsupported
from ..lock_state import LockState, RowLockState, RunState, SlotsState, WaiterState
from .commands import ListHeld, ListHeldRuns, ListRowLocks, ListWaiters, Look, LookAtSlots
from .exchange import Exchange
from .faults import Fault, StatementError
from .job_runs import last
from .lease import Refused
from .state import LockRow
from .steps import Execute, Procedure

if TYPE_CHECKING:
    from .dialect import AbstractDialect

#: Seconds. A waiter gets a free name within about a second. If it waits longer than this for a free
#: name, a row lock is in the way.
FREE_FOR = 2.0
WRITING = RowLockState("a transaction that writes to the file now")
SOMEBODY = RowLockState("a transaction, it seems: it is waited for, and no lease is on it")


def show(exchange: Exchange, most: int) -> Procedure[LockState]:
    """Read a name's state with its waiters, run, row lock, and up to ``most`` semaphore slots.

    A part that the name's row rules out is not read.
    """
    name = exchange.name
    row, slots = yield from _row_and_slots(exchange, most)
    if row is None:
        row = LockRow(name, 0, None, None, None, None, None)
    waiters = (yield from exchange.read(ListWaiters(name))).get(name, ())
    run = (yield from _last(exchange)) if row.fence else None
    row_locks = {} if row.held else (yield from _row_locks(exchange, name))
    return replace(_told(exchange.dialect, row, waiters, run, row_locks), slots=slots)


def show_row(exchange: Exchange) -> Procedure[LockRow | None]:
    """Read a name's row alone."""
    rows = yield from exchange.read(Look((exchange.name,)))
    return rows[0] if rows else None


def look_at_all(exchange: Exchange) -> Procedure[list[LockState]]:
    """Read the states of all names that have a token, waiters or a row lock."""
    rows = yield from exchange.read(ListHeld())
    waiters = yield from exchange.read(ListWaiters(None))
    runs = yield from _held_runs(exchange)
    row_locks = yield from _row_locks(exchange, None)
    others = row_locks.keys() - {row.name for row in rows}
    if others:
        rows += yield from exchange.read(Look(tuple(sorted(others))))
    states = [
        _told(exchange.dialect, row, waiters.get(row.name, ()), runs.get(row.name), row_locks)
        for row in sorted(rows, key=lambda row: row.name)
    ]
    return [state for state in states if state.status != "free" or state.waiters]


def _told(
    dialect: AbstractDialect,
    row: LockRow,
    waiters: tuple[WaiterState, ...],
    run: RunState | None,
    row_locks: Mapping[str, RowLockState],
) -> LockState:
    if run is not None and run.fence != row.fence:
        run = None  # an earlier lease's run
    row_lock = None
    if not row.held:
        row_lock = row_locks.get(row.name, row_locks.get(""))
        if row_lock is None and not dialect.traits.sees_row_locks and _stuck(row, waiters):
            row_lock = SOMEBODY
    return replace(row.told(), waiters=waiters, run=run, row_lock=row_lock)


def _stuck(row: LockRow, waiters: tuple[WaiterState, ...]) -> bool:
    """Whether the name has been free, with waiters, for longer than without a row lock."""
    waited = max((waiter.waited for waiter in waiters), default=0.0)
    free_for = waited if row.remaining is None else -row.remaining
    return min(waited, free_for) > FREE_FOR


def _last(exchange: Exchange) -> Procedure[RunState | None]:
    try:
        return (yield from last(exchange))
    except Unsupported:
        return None  # a role without rights on the runs still gets the rest


def _row_and_slots(
    exchange: Exchange, most: int
) -> Procedure[tuple[LockRow | None, SlotsState | None]]:
    """Read a name's row, and the slots of a semaphore; None if the name is no semaphore's."""
    name = exchange.name
    try:
        found = yield from exchange.read(LookAtSlots(name, 0))
        if found.semaphore_limit is not None:
            found = yield from exchange.read(LookAtSlots(name, most))
    except Unsupported:  # a role without rights on the limits still gets the rest
        return (yield from show_row(exchange)), None
    own = found.rows.pop(name, None)
    held = sum(one.row.held for one in found.rows.values())
    limit = found.semaphore_limit
    slots = None if limit is None else SlotsState(limit, held)
    return None if own is None else own.row, slots


def _held_runs(exchange: Exchange) -> Procedure[dict[str, RunState]]:
    try:
        return (yield from exchange.read(ListHeldRuns()))
    except Unsupported:
        return {}


def with_row_lock(exchange: Exchange, refused: Refused) -> Procedure[Refused]:
    """Return a refusal with the transaction that has locked the row, if that is the reason.

    The database may not show the transaction. Then the refusal stays as it is.
    """
    row = refused.state
    if refused.pause or row is None or row.held:
        return refused
    try:
        found = yield from _row_locks(exchange, row.name)
    except DBLockError:
        return refused  # the refusal stands; only its reason is unknown
    return refused._replace(row_lock=found.get(row.name, found.get("")))


def _row_locks(exchange: Exchange, name: str | None) -> Procedure[dict[str, RowLockState]]:
    """Read which transactions have locked rows, by names; the key "" means all rows."""
    if not exchange.dialect.traits.sees_row_locks:
        return {}
    try:
        locked: dict[str, RowLockState] = (yield Execute(ListRowLocks(name))).answer
        return locked
    except StatementError as failure:
        if failure.fault is Fault.BUSY and exchange.dialect.traits.one_writer:
            return {"": WRITING}
        if failure.fault is Fault.PRIVILEGE:
            exchange.dialect.hide_row_locks()
        if failure.fault in (Fault.READ_ONLY, Fault.PRIVILEGE):
            return {}  # a role that may only read still gets the rest
        raise exchange.explain(failure, harmless=True) from failure.__cause__
