"""All scenarios there are, by name."""

from __future__ import annotations

from . import connecting, holding, keeper, listening, queueing, user_locks, waking
from .exploring import SCENARIOS

__all__ = ["SCENARIOS"]

# Each of them has put its scenarios there.
_ = (connecting, holding, keeper, listening, queueing, user_locks, waking)
