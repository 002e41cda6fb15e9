"""The relational database you already have, as your lock server.

>>> from dblock import Locks
>>> locks = Locks("postgresql+psycopg://app@db/app")            # doctest: +SKIP
>>> with locks.lease("report", ttl=30) as lease:                # doctest: +SKIP
...     make_report(fence=lease.fence)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .counter import Counter
    from .cron import CronJob
    from .detached import DetachedHold, DetachedLease, DetachedSemaphore
    from .election import Election, Leadership
    from .errors import (
        Conflict,
        ConnectTimeout,
        DBLockError,
        DeadlockDetected,
        InProgress,
        KeyReused,
        LimitMismatch,
        LockLost,
        Misconfigured,
        NotAcquired,
        NotEnough,
        NotHeld,
        OutcomeUnknown,
        QueryTimeout,
        SchemaMissing,
        SocketTimeout,
        StaleFence,
        Unavailable,
        Unsupported,
    )
    from .lease import Lease
    from .lock_state import Leader, LockState, RowLockState, RunState, SlotsState, WaiterState
    from .locks import Locks
    from .multi import MultiLock
    from .once import Once
    from .policy import Attempt, RetryPolicy
    from .protocol.schedule import Danger
    from .retrying import retry_on_conflict
    from .row import RowLock
    from .semaphore import Semaphore
    from .shared import SharedLease
    from .timeouts import Timeouts

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "Conflict",
    "ConnectTimeout",
    "Counter",
    "CronJob",
    "DBLockError",
    "Danger",
    "DeadlockDetected",
    "DetachedHold",
    "DetachedLease",
    "DetachedSemaphore",
    "Election",
    "InProgress",
    "KeyReused",
    "Leader",
    "Leadership",
    "Lease",
    "LimitMismatch",
    "LockLost",
    "LockState",
    "Locks",
    "Misconfigured",
    "MultiLock",
    "NotAcquired",
    "NotEnough",
    "NotHeld",
    "Once",
    "OutcomeUnknown",
    "QueryTimeout",
    "RetryPolicy",
    "RowLock",
    "RowLockState",
    "RunState",
    "SchemaMissing",
    "Semaphore",
    "SharedLease",
    "SlotsState",
    "SocketTimeout",
    "StaleFence",
    "Timeouts",
    "Unavailable",
    "Unsupported",
    "WaiterState",
    "retry_on_conflict",
]

#: The module of each public name that is not an error. A name is imported at its first use, so that
#: a command line, or code that only catches errors, does not wait for SQLAlchemy.
_HOMES = {
    "Attempt": "policy",
    "Counter": "counter",
    "CronJob": "cron",
    "Danger": "protocol.schedule",
    "DetachedHold": "detached",
    "DetachedLease": "detached",
    "DetachedSemaphore": "detached",
    "Election": "election",
    "Leader": "lock_state",
    "Leadership": "election",
    "Lease": "lease",
    "LockState": "lock_state",
    "Locks": "locks",
    "MultiLock": "multi",
    "Once": "once",
    "RetryPolicy": "policy",
    "RowLock": "row",
    "RowLockState": "lock_state",
    "RunState": "lock_state",
    "Semaphore": "semaphore",
    "SharedLease": "shared",
    "SlotsState": "lock_state",
    "Timeouts": "timeouts",
    "WaiterState": "lock_state",
    "retry_on_conflict": "retrying",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f".{_HOMES.get(name, 'errors')}", __name__)
    found = globals()[name] = getattr(home, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
