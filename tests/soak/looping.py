"""Workers in a closed loop: equal ones, and one that loops among others that do not wait."""

from __future__ import annotations

import time
from typing import ClassVar

from .recorded import acquire
from .role import Role

WAIT = 5.0  # of who waits: short enough to notice when it is all over


class Equal(Role):
    """Takes a name and gives it back, as fast as it can; like every other."""

    like: ClassVar[str | None] = "equal"

    def section(self) -> None:
        self._loop(WAIT)

    def _loop(self, wait: float, longest: float = 0.002) -> None:
        name = self._chance.choice(self._plan.names)
        lease = self._locks.lease(name, ttl=self._plan.ttl, wait=wait)
        hold = acquire(self._recorder, lease, renewing=True)
        if hold is not None:
            time.sleep(self._chance.uniform(0, longest))
            hold.release()


class LooperOrTryer(Equal):
    """The first waits for the name, in the server where it can; the others only try."""

    like: ClassVar[str | None] = None

    def section(self) -> None:
        self._loop(WAIT if self._plan.place == 1 else 0.0, longest=0.0)
