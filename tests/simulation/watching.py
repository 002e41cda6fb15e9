"""What has to be true after every event, and in the end: the promises of the contract."""

from __future__ import annotations

import math

from dblock.handles.semaphore import TURNSTILE_TTL
from tests.simulation.allowance import Allowance
from tests.simulation.beliefs import Beliefs, Wait
from tests.simulation.ledger import Ledger
from tests.simulation.loop import Actor, Loop, Violation
from tests.simulation.store import Store
from tests.simulation.tables import Row

#: Seconds of a wait in which nobody is told of it.
_UNSEEN = 0.25
#: So often others may have a name that came to it later, before who does not keep the order.
_OVERTAKEN_MAX = 8


class Watcher:
    """Looks at the waits and the beliefs after every event, and at what is left in the end."""

    def __init__(
        self, loop: Loop, store: Store, beliefs: Beliefs, ledger: Ledger, allowance: Allowance
    ) -> None:
        self.loop = loop
        self.store = store
        self.beliefs = beliefs
        self.ledger = ledger
        self.allowance = allowance
        ledger.granted = self._granted
        ledger.passed = self._passed
        ledger.moved = self._moved
        ledger.seen = self._seen
        self._server = store.identity
        self._before = 0.0
        self._free_since: dict[str, float] = {}
        self._shared: set[str] = set()

    def look(self) -> None:
        self._shared.update(name for name, row in self.ledger.rows.items() if row.shared)
        self.beliefs.check()
        if self.beliefs.waits or self._free_since:
            self._watch_waits()
        self._watch_slots()
        self._before = self.loop.now

    # --- waiting -----------------------------------------------------------------------------

    def _watch_waits(self) -> None:
        """Promise 10: no name is free for long that somebody waits for."""
        clock = self.store.clock()
        #: The names waited for by who is able to take them, and since when.
        able: dict[str, float] = {}
        for wait in self.beliefs.waits:
            if wait.able:
                able[wait.name] = min(wait.able_since, able.get(wait.name, math.inf))
            if wait.fair and wait.joined is None:
                self._join(wait)
        for name in [name for name in self._free_since if name not in able]:
            del self._free_since[name]
        closed = clock < self.store.closed_until()
        moved = self.allowance.fails_over or self.store.identity != self._server
        if able and closed and self.store.keeps and not moved and self.store.ahead >= 0:
            raise Violation("nothing is granted for a while, although nothing was lost")
        closed = closed or self.store.down or "grant" in self.store.refused
        for name, since in able.items():
            row = self.ledger.rows.get(name)
            free = row is None or row.free(clock) or self._is_waited_for(name, row)
            if not free or closed or self.beliefs.believed(name) or self.store.locked(name):
                self._free_since.pop(name, None)
            elif name not in self._free_since:
                self._free_since[name] = max(self._since(row), since)
            elif self.loop.now - self._free_since[name] > self._free_max():
                raise Violation(
                    f"{name!r} is free since {self._free_since[name]:.2f} while somebody waits, "
                    f"at {self.loop.now:.2f}"
                )

    def _watch_slots(self) -> None:
        """Promises 1 and 10 for semaphores: no more believe than there are slots, and no slot is
        free for long that somebody waits for."""
        slots, clock = self.ledger.semaphores, self.store.clock()
        for name, limit in slots.limits.items():
            names = [f"{name}#{number + 1}" for number in range(slots.most[name])]
            believed = [belief for slot in names for belief in self.beliefs.believed(slot)]
            changed = slots.changed[name]
            old = any(
                one.lease is not None and self.ledger.grants[one.lease.token].at <= changed
                for one in believed
            )
            if len(believed) > (slots.most[name] if old else limit):
                raise Violation(f"{len(believed)} hold slots of {name!r}, which has {limit}")
            able = [wait.able_since for wait in slots.waits if wait.name == name and wait.able]
            closed = clock < self.store.closed_until() or self.store.down
            rows = [(slot, self.ledger.rows.get(slot)) for slot in names[:limit]]
            free = [
                slot
                for slot, row in rows
                if (row is None or row.free(clock))
                and not self.beliefs.believed(slot)
                and not self.store.locked(slot)
            ]
            if not able or closed or not free:
                slots.free_since.pop(name, None)
            elif name not in slots.free_since:
                slots.free_since[name] = max(self.loop.now, min(able))
            else:
                most = self._free_max() + (0.0 if self.allowance.quiet else TURNSTILE_TTL)
                if self.loop.now - slots.free_since[name] > most:
                    raise Violation(f"{free} are free while somebody waits, at {self.loop.now:.2f}")

    def _free_max(self) -> float:
        """For how long a name may be free although somebody waits for it.

        Who waits for the end of a pause does not look before that whether another has begun.
        """
        pause = self.store.longest_pause() / self.store.rate
        pauses = max(0, self.allowance.falls - 1)
        return self.allowance.free + (pause * pauses if pause < math.inf else 0.0)

    def _is_waited_for(self, name: str, row: Row) -> bool:
        """Whether the one who has a name does not know it, and waits."""
        grant = self.ledger.grants.get(row.token or "")
        return grant is not None and any(
            wait.able
            and wait.name == name
            and wait.thread.actor is grant.actor
            and grant.at >= wait.since
            for wait in self.beliefs.waits
        )

    def _since(self, row: Row | None) -> float:
        """Return when a name became free that is so now, and was not at the last event."""
        if row is None or row.token is None or row.expires is None:
            return self.loop.now
        if not row.free(self.store.clock()):
            return self.loop.now
        opened = max(row.expires, self.store.closed_until())
        return max(self._before, opened / self.store.rate)

    def _join(self, wait: Wait) -> None:
        row = self.ledger.rows.get(wait.name)
        for ticket in () if row is None else row.tickets:
            if self.ledger.tickets.get(ticket) is wait.thread.actor:
                wait.joined = self.loop.now

    def _granted(self, name: str, before: Row, actor: Actor | None) -> None:
        """Promise 10: in a fair queue nobody is overtaken by one who came later."""
        mine = next((wait for wait in self.beliefs.waits if wait.thread.actor is actor), None)
        if mine is None:
            return
        if self.allowance.quiet:
            self._overtaken(name, mine)
        if not mine.fair:
            return
        # Who is not there when it is called is passed by after a moment, and who is next hears of
        # nothing: on a database that calls that one may be passed by too.
        for wait in self.beliefs.waits:
            first = wait.name == name and wait.joined is not None and wait.joined < mine.since
            if first and wait.able and not self.allowance.disturbs(wait.thread.client.name):
                raise Violation(f"{mine.thread.name} overtakes {wait.thread.name} on {name!r}")

    def _passed(self, name: str, actor: Actor) -> None:
        """Nothing is passed on to who has given up, for others would wait for that."""
        if self.allowance.quiet and (actor, name) in self.beliefs.gave_up:
            raise Violation(f"{name!r} is passed on to {actor.name}, who has given up")

    def _overtaken(self, name: str, mine: Wait) -> None:
        """Nobody starves."""
        for wait in self.beliefs.waits:
            if wait.name != name or wait.since >= mine.since or not wait.able:
                continue
            wait.overtaken += 1
            if wait.overtaken > _OVERTAKEN_MAX:
                raise Violation(f"{mine.thread.name} overtakes {wait.thread.name} on {name!r}")

    def _moved(self, name: str, token: str) -> None:
        """What was left to run out when somebody said runs out then."""
        if token in self.ledger.final and self.allowance.answered:
            raise Violation(f"{name!r} was to run out, and is renewed")

    def _seen(self, actor: Actor) -> None:
        """A wait that is short costs nothing; and of those that hold nothing one is seen.

        It is different for a name that readers share: they go past a writer that is not seen.
        """
        wait = next((wait for wait in self.beliefs.waits if wait.thread.actor is actor), None)
        if wait is None or wait.name in self._shared:
            return
        if self.loop.now - wait.since < _UNSEEN:
            raise Violation(f"{actor.name} is seen to wait for {wait.name!r} at once")
        seen = {
            self.ledger.waiters.get(id) for id, name in self.store.waiters() if name == wait.name
        }
        alike = [
            other.thread.actor
            for other in self.beliefs.waits
            if other.thread.actor in seen
            and other.thread.client is actor.client
            and not self.beliefs.holds_any(other.thread)
        ]
        if len(alike) > 1 and self.allowance.quiet:
            raise Violation(
                f"{len(alike)} of {actor.client.name} are seen to wait for {wait.name!r}"
            )

    # --- the end -----------------------------------------------------------------------------

    def judge(self) -> None:
        """In the end: nobody hangs, and nothing is left."""
        for actor in self.loop.actors:
            if actor.client.alive and not actor.finished and not actor.daemon:
                raise Violation(f"{actor.name} waits for ever")
        self.look()
        for name, row in self.ledger.rows.items():
            self._judge_row(name, row)
        for hold in self.beliefs.released:
            if hold.loss is not None:
                raise Violation(f"{hold.name!r} was lost after it had been given back")
        self._judge_sessions()
        for id, name in self.store.waiters():
            sender = self.ledger.waiters.get(id)
            if sender is not None and self._answers(sender, "register", "unregister"):
                raise Violation(f"{sender.name} is seen to wait for {name!r}, and does not")
        self._judge_effects()
        if self.allowance.quiet:
            self.ledger.rates.judge()
        for key in self.ledger.refused:
            stock, n = self.ledger.changes[key]
            if key in self.ledger.committed.applied:
                raise Violation(f"{key} was taken, and told not to be")
            if self.ledger.committed.stock[stock] >= n:
                raise Violation(f"there is enough for {key}, which was refused")

    def _judge_effects(self) -> None:
        """What was done once, or behind a gate, is there."""
        self.ledger.effects.look(self.store.committed(), self.store.clock())
        if not self.allowance.fails_over:
            self.ledger.effects.judge()

    def _judge_sessions(self) -> None:
        """A session that dblock has lost is not left on a server that can end it."""
        ends = self.store.ends_sessions and "end_session" not in self.store.refused
        ends = ends and not self.store.down_until  # else it has gone with the server
        if not ends or not self.allowance.ends:
            return
        for link in self.store.links:
            ours = link.known and not (link.lent or link.channel or link.closing)
            if ours and link.client.alive and link.broken and not link.ended:
                raise Violation(f"a session of {link.client.name} is left behind")

    def _judge_row(self, name: str, row: Row) -> None:
        before = self.store.left.get(name)  # a crash may have brought back what had ended
        for ticket in row.tickets:
            actor = self.ledger.tickets.get(ticket)
            if before is not None and ticket in before.tickets:
                continue
            if actor is not None and self._answers(actor, "leave", "connect", "select"):
                raise Violation(f"{actor.name} stands in the queue of {name!r}, and is gone")
        if row.token is None or row.token in self.ledger.left or row.free(self.store.clock()):
            return
        if before is not None and row.token == before.token:
            return
        actors = [self.ledger.grants[token].actor for token in row.holders]
        kinds = ("release", "pass_on", "leave", "leave_readers")
        answers = all(self._answers(actor, *kinds) for actor in actors)
        if answers and not self.beliefs.believed(name):
            raise Violation(f"{name!r} is held by nobody, since {actors[0].name} had it")

    def _answers(self, actor: Actor, *kinds: str) -> bool:
        """Whether a client lives and has no excuse for what it has left."""
        told = actor in self.ledger.unknowing
        return (
            actor.client.alive and not told and not self.allowance.fails(actor.client.name, *kinds)
        )
