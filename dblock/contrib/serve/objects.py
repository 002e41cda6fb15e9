"""The JSON objects of names and of jobs, as clients get them. No object has a token."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ...lock_state import Leader, LockState, RunState


def lease_object(state: LockState, ago: float = 0.0) -> dict[str, Any]:
    """Return what clients read of a name that was read ``ago`` seconds before.

    A transaction's statement may have data in it, so clients get its holder only.
    """
    leased = state.status not in ("free", "locked", "full")
    remaining = state.remaining if leased else None
    row_lock = state.row_lock
    return {
        "name": state.name,
        "state": state.status,
        "holder": state.owner if leased else None,
        "fence": state.fence,
        "since": _iso(state.acquired_at) if leased else None,
        "expires_at": _iso(state.expires_at) if leased else None,
        "expires_in": None if remaining is None else round(remaining - ago, 3),
        "readers": state.readers if leased else None,
        "row_lock": row_lock and {"holder": row_lock.holder, "since": _iso(row_lock.since)},
        "waiters": [
            {
                "waiter": waiter.owner,
                "for": waiter.strategy,
                "since": waiter.since.isoformat(),
                "waited": round(waiter.waited + ago, 3),
            }
            for waiter in state.waiters
        ],
    }


def run_object(run: RunState) -> dict[str, Any]:
    """Return what clients read of a job's run."""
    return {
        "name": run.name,
        "slot": run.slot or None,
        "owner": run.owner,
        "fence": run.fence,
        "started_at": run.started_at.isoformat(),
        "ended_at": _iso(run.ended_at),
        "seconds": None if run.seconds is None else round(run.seconds, 3),
        "exit_status": run.exit_status,
        "outcome": run.outcome,
    }


def leader_object(name: str, leader: Leader) -> dict[str, Any]:
    """Return what clients read of a leader's value."""
    return {
        "name": name,
        "holder": leader.owner,
        "fence": leader.fence,
        "value": leader.value,
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
