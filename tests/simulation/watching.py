"""What has to be true after every event, and in the end: the promises of the contract."""

from __future__ import annotations

from tests.simulation.beliefs import Beliefs
from tests.simulation.loop import Loop, Violation
from tests.simulation.schedule import Fault, Schedule
from tests.simulation.store import Row, Store

#: Seconds for which a free name may have a living waiter and no holder, without a fault.
FREE_MAX = 1.2

#: What each fault may cost on top. A connection that nothing is heard of is given up after
#: ``Timeouts.socket``, and what became of its statement is looked for as long; who is dead stays a
#: holder for its TTL; and others may look at it only so often.
_COSTS = {
    "lost": 12.0,
    "mute": 32.0,
    "unanswered": 12.0,
    "deaf": 32.0,
    "late": 22.0,
    "kill": 12.0,
    "kill-before": 12.0,
    "pause": 12.0,
    "interrupt": 12.0,
    "cut": 12.0,
    "crash": 12.0,
    "crash-after": 12.0,
    "promote": 12.0,
}


def allowance(faults: list[Fault]) -> float:
    return sum(_COSTS[fault.kind] + fault.seconds for fault in faults)


class Watcher:
    """Looks at the tables and the beliefs after every event."""

    def __init__(self, loop: Loop, store: Store, beliefs: Beliefs, schedule: Schedule) -> None:
        self.loop = loop
        self.store = store
        self.beliefs = beliefs
        self._bound = FREE_MAX + allowance(schedule.faults) + schedule.delayed
        self._rows: dict[str, Row] = {}
        self._looked = -1
        #: What was lost is nobody's doing: rows are compared from then on.
        self._losses = 0
        self._free_since: dict[str, float] = {}

    def look(self) -> None:
        self.beliefs.check_all()
        now = self.store.clock()
        if self.store.changes != self._looked:
            self._looked = self.store.changes
            rows = self.store.rows()
            if self.store.losses == self._losses:
                for name, row in rows.items():
                    if row != self._rows.get(name):
                        self._compare(name, self._rows.get(name), row, now)
            self._rows, self._losses = rows, self.store.losses
        if self.beliefs.waits:
            self._watch_waits(now)

    # --- the tables --------------------------------------------------------------------------

    def _compare(self, name: str, before: Row | None, row: Row, now: float) -> None:
        """Promises 1, 2, 4 and 5, by the database's clock."""
        if before is None:
            before = Row(None, 0, None, ())
        if row.fence < before.fence:
            raise Violation(f"the fence of {name!r} fell from {before.fence} to {row.fence}")
        if row.token not in (None, before.token) and row.fence == before.fence:
            raise Violation(f"{name!r} has another holder and the same fence, {row.fence}")
        if row.fence > before.fence and row.token is not None:
            self.beliefs.note(f"{name} to {row.fence}")
            if not before.free(now):
                raise Violation(f"{name!r} was taken while it was held")
        elif row.token is not None and row.expires != before.expires:
            assert row.expires is not None
            if before.free(now) and row.expires > now:
                raise Violation(f"{name!r} was renewed after it had expired")
        elif row.token is None and before.token is not None:
            self.beliefs.note(f"{name} free")

    # --- liveness ----------------------------------------------------------------------------

    def _watch_waits(self, now: float) -> None:
        """No name is free for long that somebody waits for."""
        closed = self.store.closed_until()
        for wait in self.beliefs.waits:
            row = self._rows.get(wait.name)
            free = (row is None or row.free(now)) and not self.beliefs.believed(wait.name)
            able = wait.thread.client.alive and wait.thread.client.paused_until <= self.loop.now
            if not free or not able or now < closed:
                self._free_since.pop(wait.name, None)
                continue
            if row is not None and row.expires is not None:
                since = max(wait.since, row.expires / self.store.rate)
            else:
                since = wait.since
            since = max(since, closed / self.store.rate)
            since = self._free_since.setdefault(wait.name, since)
            if self.loop.now - since > self._bound:
                raise Violation(
                    f"{wait.name!r} is free since {since:.2f} while {wait.thread.name} waits, "
                    f"at {self.loop.now:.2f}"
                )

    def judge(self) -> None:
        """In the end: nobody hangs, and nothing is left."""
        for actor in self.loop.actors:
            if actor.client.alive and not actor.finished and not actor.daemon:
                raise Violation(f"{actor.name} waits for ever")
        for wait in self.beliefs.waits:
            if wait.thread.client.alive:
                raise Violation(f"{wait.thread.name} waits for {wait.name!r} for ever")
        self.look()
