"""The JSON objects of events: of jobs' runs and of leaders' values."""

from __future__ import annotations

from typing import Any

from ...formats.state_object import run_object
from ...lock_state import Leader, RunState


def named_run(run: RunState) -> dict[str, Any]:
    """Return what clients read of a job's run."""
    return {"name": run.name, **run_object(run)}


def leader_object(name: str, leader: Leader) -> dict[str, Any]:
    """Return what clients read of a leader's value."""
    return {
        "name": name,
        "holder": leader.owner,
        "fence": leader.fence,
        "value": leader.value,
    }
