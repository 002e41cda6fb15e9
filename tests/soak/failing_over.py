"""Failovers of which the new primary has not heard the last grants, and crashes in their pauses."""

from __future__ import annotations

import random
from functools import partial
from typing import ClassVar

from tests.servers import PostgreSQL, Server, execute
from tests.support import eventually

from .believing import SHORT
from .crew import Place
from .nemesis import EVERYWHERE, Fault, Nemesis

# In TTLs: from the first look at the new primary to a crash, and how long to see what comes of it.
LATER, AFTERWARDS = (0.0, 0.05), 0.25
# Names that are not free; and one that was free when the standby heard its last, and has been held
# for long since then.
TAKEN = "SELECT lock_name FROM dblock_lock WHERE token IS NOT NULL"
UNHEARD = (
    TAKEN
    + """ AND acquired_at < clock_timestamp() - interval '{} s'
    AND lock_name <> ALL (ARRAY[{}]) LIMIT 1"""
)


class Pair(Server):
    """A primary and its asynchronous standby, which becomes the next primary."""

    kind = "postgresql"

    def __init__(self) -> None:
        self._primary = PostgreSQL()
        self._standby: PostgreSQL | None = None

    @property
    def url(self) -> str:
        return self._primary.url

    def create_database(self, name: str, template: str | None = None) -> None:
        self._primary.create_database(name, template)

    def drop_database(self, name: str) -> None:
        self._primary.drop_database(name)

    def start(self) -> None:
        self._primary.start()

    def stop(self) -> None:
        self._primary.stop()

    def kill(self) -> None:
        self._primary.kill()

    def pause(self) -> None:
        self._primary.pause()

    def resume(self) -> None:
        self._primary.resume()

    def close(self) -> None:
        self._primary.close()
        if self._standby is not None:
            self._standby.close()

    def crash(self) -> None:
        """Kill one session of the primary."""
        self._primary.crash_backend()

    def follow(self) -> None:
        """Let a new standby have what the primary has written so far, and nothing else."""
        self._standby = PostgreSQL(primary=self._primary)
        self._standby.start()
        written = self._primary.flushed()
        eventually(partial(self._standby.has_replayed, written))
        self._standby.stop()

    def fail_over(self) -> None:
        """Let the primary die, and the standby have its place."""
        assert self._standby is not None
        self._primary.kill()
        old, self._primary, self._standby = self._primary, self._standby, None
        self._primary.start()
        self._primary.promote()
        old.close()


class FailingOver(Nemesis):
    """One failover after the other; in each pause the new primary crashes, once or twice."""

    between: ClassVar[dict[str, float]] = {EVERYWHERE: 0.05}

    def kinds(self) -> dict[str, dict[str, Fault]]:
        return {EVERYWHERE: {"failover, and crashes in its pause": self._fail_over}}

    @property
    def closed(self) -> float:
        return self._plan.ttl

    def _fail_over(self, place: Place, chance: random.Random) -> None:
        pair = self._server
        assert isinstance(pair, Pair)
        pair.follow()
        taken = ", ".join(f"'{name}'" for (name,) in [("",), *self._execute(TAKEN)])
        unheard = UNHEARD.format(2 * SHORT * self._plan.ttl, taken)
        eventually(lambda: bool(self._execute(unheard)))
        pair.fail_over()
        for other in self._crew.places:
            other.proxy.lead_to(pair.url)
        for _ in range(chance.choice((1, 2))):
            # Until a worker has found out that this is another server, or that it has crashed.
            eventually(lambda: bool(self._execute("SELECT 1 FROM dblock_witness")))
            self._pause(chance, *LATER)
            pair.crash()
        self._pause(chance, AFTERWARDS, AFTERWARDS)

    def _execute(self, query: str) -> list[tuple[str]]:
        return execute(self._server.url_for(self._database), query)
