"""Workers that pass names on to each other, and waits of theirs that end in every way there is."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial

from .leaving import Leaver
from .recorded import acquire

# Seconds of waiting until one that is to die does, in the mean. Where nobody sees that it has died,
# the name is kept for it for a moment, and too many would keep it from the living.
LIFE, LIFE_UNSEEN = 0.05, 1.0


class HandingOff(Leaver):
    """Waits time out, are cancelled and are interrupted, about when their turn comes.

    In every second place there is one that waits alone and is killed while it does.
    """

    waits = 0.001, 0.4
    longest = 0.001
    renews = True

    def section(self) -> None:
        if self._plan.place % 2 == 0:
            self._is_killed()
            return
        vain = (partial(self._waits_in_vain, locks) for locks in self._fresh)
        self._together(self._cancels, *vain, meanwhile=self._is_interrupted)

    def _is_killed(self) -> None:
        life = LIFE if self._plan.sees_deaths else LIFE_UNSEEN
        death = threading.Timer(self._chance.expovariate(1 / life), self._die)
        death.daemon = True
        death.start()
        hold = acquire(self._recorder, self._lease(self._locks), renewing=self.renews)
        death.cancel()
        if hold is not None:
            hold.release()

    def _die(self) -> None:
        death = self._recorder.begin("death")
        death.tell("ok")
        os.kill(os.getpid(), signal.SIGKILL)
