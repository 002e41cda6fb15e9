"""The relational database you already have, as your lock server.

>>> from dblock import Locks
>>> locks = Locks("postgresql+psycopg://app@db/app")            # doctest: +SKIP
>>> with locks.lease("report", ttl=30) as lease:                # doctest: +SKIP
...     make_report(fence=lease.fence)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
from .row import RowLock
from .timeouts import Timeouts

if TYPE_CHECKING:
    from .counter import Counter
    from .retrying import retry_on_conflict

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

#: What is of use to who has SQLAlchemy's ORM, which takes long to import: on first use.
_LATER = {"Counter": "counter", "retry_on_conflict": "retrying"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
