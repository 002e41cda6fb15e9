"""Workers that hold names for long, and look whether they still do; they write nothing.

What an asynchronous standby has not got of a user's data is lost in a failover, and dblock promises
nothing about that. The rules of leases see all that is to be seen.
"""

from __future__ import annotations

import time

from dblock import Locks, Quorum

from .history import now
from .recorded import acquire
from .role import Role

SHORT, LONG = 0.03, 0.8  # of the TTL, for which a name is held


class Believer(Role):
    """Holds a name, often for long, and looks at it again and again; lets nothing run out."""

    def section(self) -> None:
        self._hold(self._locks)

    def _hold(self, locks: Locks | Quorum) -> None:
        chance, ttl = self._chance, self._plan.ttl
        renewing = chance.random() < 0.3
        wait = 0.0 if chance.random() < 0.5 else chance.uniform(0, 0.1) * ttl
        name = chance.choice(self._plan.names)
        lease = locks.lease(name, ttl=ttl, wait=wait, renew=renewing)
        hold = acquire(self._recorder, lease, renewing=renewing)
        if hold is None:
            time.sleep(chance.uniform(0, 0.02) * ttl)
            return
        # Who renews is soon told of a failover; who does not goes on believing.
        short = renewing or chance.random() < 0.5
        until = now() + ttl * (chance.uniform(0, SHORT) if short else LONG)
        while hold.look() and now() < until and not self._plan.stopped:
            time.sleep(0.02 * ttl)
        hold.release()
