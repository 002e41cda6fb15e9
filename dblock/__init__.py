"""The relational database you already have, as your lock server.

>>> from dblock import Locks
>>> locks = Locks("postgresql+psycopg://app@db/app")            # doctest: +SKIP
>>> with locks.lease("report", ttl=30) as lease:                # doctest: +SKIP
...     make_report(fence=lease.fence)
"""

from __future__ import annotations

from .counter import Counter
from .cron import CronJob
from .errors import (
    Conflict,
    ConnectTimeout,
    DBLockError,
    DeadlockDetected,
    LockLost,
    NotAcquired,
    NotEnough,
    NotHeld,
    OutcomeUnknown,
    QueryTimeout,
    SchemaMissing,
    SocketTimeout,
    Unavailable,
    Unsupported,
)
from .lease import Lease
from .lock_state import LockState, WaiterState
from .locks import Locks
from .multi import MultiLock
from .policy import Attempt, RetryPolicy
from .protocol.schedule import Danger
from .protocol.state import RunState
from .retrying import retry_on_conflict
from .row import RowLock
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
    "Lease",
    "LockLost",
    "LockState",
    "Locks",
    "MultiLock",
    "NotAcquired",
    "NotEnough",
    "NotHeld",
    "OutcomeUnknown",
    "QueryTimeout",
    "RetryPolicy",
    "RowLock",
    "RunState",
    "SchemaMissing",
    "SocketTimeout",
    "Timeouts",
    "Unavailable",
    "Unsupported",
    "WaiterState",
    "retry_on_conflict",
]
