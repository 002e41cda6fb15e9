"""The JSON objects of events: of jobs' runs and of leaders' values."""

from __future__ import annotations

from typing import Any

from ...lock_state import Leader, RunState


def run_object(run: RunState) -> dict[str, Any]:
    """Return what clients read of a job's run."""
    return {
        "name": run.name,
        "slot": run.slot or None,
        "owner": run.owner,
        "fence": run.fence,
        "started_at": run.started_at.isoformat(),
        "ended_at": None if run.ended_at is None else run.ended_at.isoformat(),
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
