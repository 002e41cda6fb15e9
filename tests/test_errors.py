"""The errors: one tree, and each crosses a process boundary whole."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

import dblock
from dblock import (
    Conflict,
    ConnectTimeout,
    DBLockError,
    DeadlockDetected,
    InProgress,
    KeyReused,
    LimitMismatch,
    LockLost,
    LockState,
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

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOLDER = LockState("report", 7, "host pid 1", NOW, NOW, 2.5)

ERRORS: list[tuple[DBLockError, dict[str, object]]] = [
    (DBLockError("why", name="report"), {"name": "report"}),
    (NotAcquired("why", name="report", holder=HOLDER), {"name": "report", "holder": HOLDER}),
    (NotAcquired("why"), {"name": None, "holder": None}),
    (NotHeld("why", name="report"), {"name": "report"}),
    (LockLost("why", name="report", reason="expired"), {"name": "report", "reason": "expired"}),
    (
        StaleFence("why", name="report", fence=6, newest=7),
        {"name": "report", "reason": "taken over", "fence": 6, "newest": 7},
    ),
    (DeadlockDetected("why", name="report"), {"name": "report", "cycle": ()}),
    (DeadlockDetected("why", name="a", cycle=(("a", "me"),)), {"cycle": (("a", "me"),)}),
    (OutcomeUnknown("why", name="report"), {"name": "report"}),
    (Conflict("why", name="report"), {"name": "report"}),
    (NotEnough("why", available=3), {"name": None, "available": 3}),
    (InProgress("why", name="order"), {"name": "order"}),
    (
        RateLimited("why", name="api", retry_after=2.5),
        {"name": "api", "holder": None, "retry_after": 2.5},
    ),
    (KeyReused("why", name="order"), {"name": "order"}),
    (
        LimitMismatch("why", name="api", limit=3, stored=2),
        {"name": "api", "limit": 3, "stored": 2},
    ),
    (Unavailable("why", name="report"), {"name": "report"}),
    (Misconfigured("why", name="report"), {"name": "report"}),
    (ConnectTimeout("why", name="report"), {"name": "report"}),
    (QueryTimeout("why", name="report"), {"name": "report"}),
    (SocketTimeout("why", name="report"), {"name": "report"}),
    (SchemaMissing("why"), {"name": None}),
    (Unsupported("why", name="report"), {"name": "report"}),
]


@pytest.mark.parametrize(("error", "attributes"), ERRORS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_whole(error: DBLockError, attributes: dict[str, object], protocol: int) -> None:
    error.add_note("and a note")
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is type(error)
    assert str(copy) == "why"
    assert copy.args == error.args
    for name, value in attributes.items():
        assert getattr(copy, name) == value
    assert copy.__notes__ == error.__notes__
    del error.__notes__


def test_every_error_is_tested() -> None:
    exported = {
        value
        for name in dblock.__all__
        if isinstance(value := getattr(dblock, name), type) and issubclass(value, Exception)
    }
    assert exported | {DBLockError} == {type(error) for error, _ in ERRORS}


def test_one_tree() -> None:
    for error, _ in ERRORS:
        assert isinstance(error, DBLockError)
        if isinstance(error, Misconfigured | ConnectTimeout | QueryTimeout | SocketTimeout):
            assert type(error).__bases__ == (Unavailable,)
        elif isinstance(error, StaleFence):
            assert type(error).__bases__ == (LockLost,)
        elif isinstance(error, InProgress | RateLimited):
            assert type(error).__bases__ == (NotAcquired,)
        elif type(error) not in (DBLockError, NotAcquired, NotHeld, LimitMismatch):
            assert type(error).__bases__ == (DBLockError,)
    assert DBLockError.__bases__ == (Exception,)


def test_not_acquired_is_a_timeout() -> None:
    assert issubclass(NotAcquired, TimeoutError)
    with pytest.raises(TimeoutError, match="why"):
        raise NotAcquired("why")


def test_not_held_is_what_pythons_own_locks_raise() -> None:
    assert NotHeld.__bases__ == (DBLockError, RuntimeError)
    with pytest.raises(RuntimeError, match="why"):
        raise NotHeld("why")
