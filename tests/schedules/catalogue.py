"""All scenarios there are, by name."""

from __future__ import annotations

from . import connecting, gating, holding, keeping, listening, queueing, waking
from .exploring import SCENARIOS

__all__ = ["SCENARIOS"]

# Each of them has put its scenarios there.
_ = (connecting, gating, holding, keeping, listening, queueing, waking)
