"""Keeps the lease while the command runs.

The place for the library's keeper: a thread of its own for the one lease there is, so that signals
and the end of the command never wait for the database.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import clock
from ..errors import LockLost

if TYPE_CHECKING:
    from ..lease import Lease

# After a refusal that renew() does not repeat by itself.
PAUSE = 1.0


class Renewal:
    """Renews a lease every third of its TTL until stopped, or until it is lost.

    Nothing but the loss ends it early: whatever goes wrong before, the lease is held until the
    holder's own deadline. ``loss`` is set before ``on_lost`` is called, in the renewal's thread.
    """

    def __init__(self, lease: Lease, on_lost: Callable[[], None]) -> None:
        self.loss: LockLost | None = None
        self._lease = lease
        self._on_lost = on_lost
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dblock renewal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """End it; False when it is still talking to the database after ``patience`` seconds."""
        self._ended.set()
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        interval = self._lease.ttl / 3
        # The acquire may have used up some of the first term.
        due = clock.now() + min(interval, self._lease.remaining / 2)
        while not self._ended.wait(max(0.0, due - clock.now())):
            start = clock.now()
            due = start + interval
            try:
                self._lease.renew()
            except LockLost as loss:
                self.loss = loss
                self._on_lost()
                return
            except Exception:
                due = start + min(interval, PAUSE)
