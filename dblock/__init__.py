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
    from .conflicts import retry_on_conflict
    from .counters.counter import Counter
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
        RateLimited,
        SchemaMissing,
        SocketTimeout,
        StaleFence,
        Unavailable,
        Unsupported,
    )
    from .handles.attached import AttachedLease
    from .handles.cron import Cron, CronJob
    from .handles.detached import DetachedHold, DetachedLease, DetachedSemaphore
    from .handles.election import Election, Leadership, Observation
    from .handles.lease import Lease
    from .handles.multi import MultiLock
    from .handles.once import Once
    from .handles.rate import Rate
    from .handles.row import RowLock
    from .handles.semaphore import Semaphore
    from .handles.shared import SharedLease
    from .lock_state import Leader, LockState, RowLockState, RunState, SlotsState, WaiterState
    from .locks import Locks
    from .policy import Attempt, RetryPolicy, Timeouts
    from .protocol.schedule import Danger
    from .protocol.state import Pruned
    from .quorum.lease import QuorumLease
    from .quorum.members import MemberStatus
    from .quorum.quorum import Quorum

__version__ = "0.1.0"

__all__ = [
    "AttachedLease",
    "Attempt",
    "Conflict",
    "ConnectTimeout",
    "Counter",
    "Cron",
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
    "MemberStatus",
    "Misconfigured",
    "MultiLock",
    "NotAcquired",
    "NotEnough",
    "NotHeld",
    "Observation",
    "Once",
    "OutcomeUnknown",
    "Pruned",
    "QueryTimeout",
    "Quorum",
    "QuorumLease",
    "Rate",
    "RateLimited",
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
    "AttachedLease": "handles.attached",
    "Attempt": "policy",
    "Counter": "counters.counter",
    "Cron": "handles.cron",
    "CronJob": "handles.cron",
    "Danger": "protocol.schedule",
    "DetachedHold": "handles.detached",
    "DetachedLease": "handles.detached",
    "DetachedSemaphore": "handles.detached",
    "Election": "handles.election",
    "Leader": "lock_state",
    "Leadership": "handles.election",
    "Lease": "handles.lease",
    "LockState": "lock_state",
    "Locks": "locks",
    "MemberStatus": "quorum.members",
    "MultiLock": "handles.multi",
    "Observation": "handles.election",
    "Once": "handles.once",
    "Pruned": "protocol.state",
    "Quorum": "quorum.quorum",
    "QuorumLease": "quorum.lease",
    "Rate": "handles.rate",
    "RetryPolicy": "policy",
    "RowLock": "handles.row",
    "RowLockState": "lock_state",
    "RunState": "lock_state",
    "Semaphore": "handles.semaphore",
    "SharedLease": "handles.shared",
    "SlotsState": "lock_state",
    "Timeouts": "policy",
    "WaiterState": "lock_state",
    "retry_on_conflict": "conflicts",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f".{_HOMES.get(name, 'errors')}", __name__)
    found = globals()[name] = getattr(home, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
