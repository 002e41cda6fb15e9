"""The state of a name, as a client of the service may see it."""

from __future__ import annotations

from typing import Any

from ...formats.state_object import state_object
from ...lock_state import LockState


def described(state: LockState) -> dict[str, Any]:
    """Return the JSON object of a name. For a row lock it shows the holder, not its statement."""
    made = state_object(state)
    if made["row_lock"] is not None:
        made["row_lock"] = {key: made["row_lock"][key] for key in ("holder", "since")}
    return made
