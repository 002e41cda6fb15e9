"""States of names and runs of jobs as JSON objects, for the command line and the lock service."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..lock_state import LockState, RowLockState, RunState


def state_object(state: LockState) -> dict[str, Any]:
    """Return a name's state as an object for JSON, without a hold that was released."""
    leased = state.status not in ("free", "locked", "full")
    return {
        "name": state.name,
        "state": state.status,
        "holder": state.owner if leased else None,
        "since": _iso(state.acquired_at) if leased else None,
        "expires_at": _iso(state.expires_at) if leased else None,
        "expires_in": round(state.remaining, 3) if leased and state.remaining is not None else None,
        "fence": state.fence,
        "readers": state.readers if leased else None,
        "slots": None if state.slots is None else state.slots._asdict(),
        "row_lock": None if state.row_lock is None else _row_lock_object(state.row_lock),
        "waiters": [
            {
                "waiter": waiter.owner,
                "for": waiter.strategy,
                "since": waiter.since.isoformat(),
                "waited": round(waiter.waited, 3),
            }
            for waiter in state.waiters
        ],
    }


def run_object(run: RunState) -> dict[str, Any]:
    """Return a run as an object for JSON."""
    return {
        "slot": run.slot or None,
        "owner": run.owner,
        "fence": run.fence,
        "started_at": run.started_at.isoformat(),
        "ended_at": _iso(run.ended_at),
        "seconds": None if run.seconds is None else round(run.seconds, 3),
        "exit_status": run.exit_status,
        "outcome": run.outcome,
    }


def _row_lock_object(row_lock: RowLockState) -> dict[str, Any]:
    return row_lock._asdict() | {"since": _iso(row_lock.since)}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
