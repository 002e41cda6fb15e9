"""What a worker does: one section after the other, each with an outcome of its own."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar

from dblock import Locks

from .history import Recorder
from .plan import Plan


class Role(ABC):
    """The part that a worker plays, in its process."""

    #: Workers with the same word here are to get as much as each other.
    like: ClassVar[str | None] = None

    def __init__(self, plan: Plan, recorder: Recorder, locks: Locks) -> None:
        self._plan, self._recorder, self._locks = plan, recorder, locks
        self._chance = random.Random(f"{plan.seed}/{recorder.process}")

    @abstractmethod
    def section(self) -> None:
        """Work for a while; then somebody looks whether it is all over."""
