"""Calms: nobody waits any more, and every name has to be free for who does not wait."""

from __future__ import annotations

import random
import time

from dblock import Locks
from tests.servers import Server

from .crew import Crew, Place
from .history import Recorder, Tail, now
from .nemesis import Fault, Nemesis
from .plan import CALM, Plan
from .recorded import TIMEOUTS, acquire

BUSY = 1.5, 3.0  # TTLs of waiting before a calm
LONGEST = 30.0  # seconds that a calm lasts at most
EVERY = 0.1


class Calming(Nemesis):
    """Lets the workers rest now and then, and takes each name once in that time."""

    records = "calm"

    def __init__(self, crew: Crew, server: Server, database: str, plan: Plan) -> None:
        super().__init__(crew, server, database, plan)
        self._tries = Recorder(plan.directory, "tries")
        self._recorders.append(self._tries)

    def kinds(self) -> dict[str, dict[str, Fault]]:
        return {"calm": {"calm": self._calm}}

    def done(self, tail: Tail) -> bool:
        return tail.counts["calm", "ok"] > 0

    def _calm(self, place: Place, chance: random.Random) -> None:
        self._pause(chance, *BUSY)
        file, until, tail = self._plan.directory / CALM, now() + LONGEST, Tail(self._plan.directory)
        file.touch()
        while now() < until:
            time.sleep(EVERY)
            tail.follow()
            if not tail.pending("acquire"):
                break
        left = list(self._plan.names)
        with Locks(self._server.url_for(self._database), timeouts=TIMEOUTS) as locks:
            while left and now() < until:
                name = left.pop(0)
                lease = locks.lease(name, ttl=self._plan.ttl, wait=0, renew=False)
                hold = acquire(self._tries, lease)
                if hold is None:
                    left.append(name)
                    time.sleep(EVERY)
                else:
                    hold.release()
        file.unlink()
