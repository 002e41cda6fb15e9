"""The JSON objects that clients read: names, jobs' runs and leaders' values."""

from __future__ import annotations

from typing import Any

from ...formats.state_object import run_object, state_object
from ...lock_state import Leader, LockState, RunState


def described(state: LockState) -> dict[str, Any]:
    """Return the JSON object of a name. For a row lock it shows the holder, not its statement."""
    made = state_object(state)
    if made["row_lock"] is not None:
        made["row_lock"] = {key: made["row_lock"][key] for key in ("holder", "since")}
    return made


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
