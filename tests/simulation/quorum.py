"""A quorum over several stores: the production code, whose fan runs simulated threads; and what has
to be true of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from greenlet import GreenletExit

from dblock import Leadership, Quorum
from dblock.protocol.ballot import majority
from dblock.protocol.membership import joined, list_of
from dblock.quorum.election import QuorumElection
from dblock.quorum.fan import Fan, Work
from dblock.quorum.lease import QuorumLease
from tests.simulation.client import SimulatedLocks
from tests.simulation.loop import Actor, Violation
from tests.simulation.memory import ROUNDED
from tests.simulation.transport import READING, Link, kind_of

if TYPE_CHECKING:
    from dblock.holding.lease_hold import LeaseHold
    from tests.simulation.client import Client
    from tests.simulation.run import Clients
    from tests.simulation.store import Store
    from tests.simulation.tables import Row
    from tests.simulation.thread import Thread

NAME = "x"
#: The longest TTL in seconds that the members have on record.
TTL = 6.0
#: Kinds of statements that leave nothing behind where they succeed.
_ENDS = ("release", "pass_on", "leave")


class SimulatedFan(Fan):
    """Runs each piece of work in a thread of its own, which the loop schedules."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def begin(self, member: int, work: Work) -> None:
        client = self._client
        client.loop.begin(client, f"{client.name}.m{member}", work)


class SimulatedQuorum(Quorum):
    """The Quorum of one simulated process."""

    def __init__(self, client: Client, stores: Sequence[Store]) -> None:
        engines = [store.engine for store in stores]

        def locks(engine: Any, **_: object) -> SimulatedLocks:
            return SimulatedLocks(client, stores[engines.index(engine)])

        self._locks = locks
        self._fan = lambda size: SimulatedFan(client)
        super().__init__(engines)


@dataclass(slots=True, eq=False)
class Believed:
    """A thread takes itself for the holder of the name."""

    thread: Thread
    hold: LeaseHold
    since: float

    def lasts(self) -> bool:
        """Whether the client would say so now, by its own clock, stopped or not."""
        client = self.thread.client
        return client.alive and self.hold.keepable(client.now())

    def __str__(self) -> str:
        return f"{self.thread.name} since {self.since:.4f} with {self.hold.fence}"


class Referee:
    """Compares the databases, after each statement, with what the clients believe, after each
    event."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.loop = clients.loop
        self.stores = clients.store.members
        self._note = clients.beliefs.note
        self._rows: list[dict[str, Row]] = [{} for _ in self.stores]
        #: When a member was put back to a copy, in the loop's time.
        self._forgot = [-1.0 for _ in self.stores]
        self._believed: list[Believed] = []
        self._fence = 0
        #: Of each leader, the number of its last value that it was told is written.
        self._proclaimed: dict[str, int] = {}
        #: Who asked for the name with a token, and when, for the first time.
        self._actors: dict[str, Actor] = {}
        self._asked: dict[str, float] = {}
        for number, store in enumerate(self.stores):
            if number:
                store.begin(clients.loop, clients.store.rate)
            store.watch = partial(self._carried_out, number)
            store.told = lambda actor, query, answer: None

    # --- the databases -----------------------------------------------------------------------

    def _carried_out(self, number: int, link: Link | None, query: Any) -> None:
        kind, store = kind_of(query), self.stores[number]
        command: Any = getattr(query, "command", None)
        if link is not None and link.actor is not None and hasattr(command, "token"):
            self._actors.setdefault(command.token, link.actor)
            self._asked.setdefault(command.token, self.loop.now)
        if kind in READING:
            return
        if kind == "write_member":
            self._note(f"{number} records {command.after}")
        before, self._rows[number] = self._rows[number], store.rows()
        for name, row in self._rows[number].items():
            if row != before.get(name):
                self._compare(number, name, before.get(name), row)

    def _compare(self, number: int, name: str, before: Row | None, row: Row) -> None:
        """What one database does is as in any other: but a fence may grow within a hold."""
        now = self.stores[number].clock()
        actor = self._actors.get(row.token or "")
        holder = "nobody" if actor is None else actor.client.name
        self._note(f"{number} {name} {row.fence} {holder}")
        if before is None:
            return
        if row.fence < before.fence:
            raise Violation(f"the fence of {name!r} fell at {number}: {before.fence}, {row.fence}")
        if row.token is None or row.expires is None:
            return
        if row.token != before.token and not before.free(now):
            raise Violation(f"{name!r} was taken at {number} while it was held")
        if row.expires > now + TTL + ROUNDED:
            raise Violation(f"{name!r} is held at {number} for longer than is on record")

    def forgot(self, number: int) -> None:
        """A member was put back to a copy."""
        self._forgot[number] = self.loop.now
        self._rows[number] = self.stores[number].rows()
        self._note(f"{number} forgot")

    # --- the clients -------------------------------------------------------------------------

    def begin(self, thread: Thread, hold: LeaseHold) -> None:
        """A thread was told that it has the name."""
        belief = Believed(thread, hold, self.loop.now)
        fence = hold.lease.fence
        self._note(f"{thread.name} has {hold.name} {fence}")
        if fence <= self._fence:
            raise Violation(f"a fence comes again: {belief}, after {self._fence}")
        self._fence = fence
        self._believed.append(belief)
        self.look()

    def end(self, thread: Thread) -> None:
        """A thread begins to give the name back."""
        self._believed = [one for one in self._believed if one.thread is not thread]

    def look(self) -> None:
        """No two believe that they have it; and a majority has it, and its fence."""
        lasting = [one for one in self._believed if one.lasts()]
        if len(lasting) > 1:
            raise Violation(f"two hold {NAME!r}: {' and '.join(map(str, lasting))}")
        for belief in lasting:
            for what, has in (("token", self._has_token), ("fence", self._has_fence)):
                count = sum(has(number, belief) for number in range(len(self.stores)))
                if count < majority(len(self.stores)):
                    raise Violation(f"{belief}: {count} members have its {what}")

    def _has_forgotten(self, number: int, belief: Believed) -> bool:
        """Whether a member may have had the token, and has been put back to a copy since."""
        return self._forgot[number] >= self._asked[belief.hold.token]

    def _has_token(self, number: int, belief: Believed) -> bool:
        row = self._rows[number].get(NAME)
        if self._has_forgotten(number, belief):
            return True
        clock = self.stores[number].clock()
        return row is not None and row.token == belief.hold.token and not row.free(clock)

    def _has_fence(self, number: int, belief: Believed) -> bool:
        row = self._rows[number].get(NAME)
        if self._has_forgotten(number, belief):
            return True
        return row is not None and row.fence >= belief.hold.lease.fence

    # --- the leaders -------------------------------------------------------------------------

    def proclaimed(self, thread: Thread, number: int) -> None:
        """A leader was told that its value is written."""
        self._note(f"{thread.name} has proclaimed {number}")
        self._proclaimed[thread.name] = number

    def observe(self, election: QuorumElection) -> None:
        """Read the leader. If one leads all the time, a leader is shown; and if that is the one,
        its value is no older than its last one at the beginning."""
        before = self._leader()
        written = 0 if before is None else self._proclaimed.get(before.thread.name, 0)
        found = election.leader()
        name, value = (str(found.owner).split()[-1], found.value) if found else (None, None)
        self._note(f"{name} is shown, with {value}")
        if before is None or before is not self._leader():
            return
        if name is None:
            raise Violation(f"no leader is shown, while it is {before}")
        if name == before.thread.name and (value or 0) < written:
            raise Violation(f"{value} of {name} is shown, after {written}")

    def _leader(self) -> Believed | None:
        return next((one for one in self._believed if one.lasts()), None)

    def judge(self) -> None:
        """In the end nothing is held by whom nothing has failed, nor waited for."""
        for number, store in enumerate(self.stores):
            row, clock = store.rows().get(NAME), store.clock()
            if row is None or row.token is None or row.free(clock) or not self._answers(row.token):
                continue
            raise Violation(f"{self._actors[row.token].name} has left {NAME!r} held at {number}")

    def _answers(self, token: str) -> bool:
        """Whether the client lives, and has no excuse for what it has left."""
        client, clients = self._actors[token].client, self._clients
        told = any(actor.client is client for actor in clients.ledger.unknowing)
        return client.alive and not told and not clients.allowance.fails(client.name, *_ENDS)


class World:
    """Three databases as one quorum, and the clients that use it."""

    def __init__(self, clients: Clients, *, begun: bool = True) -> None:
        self.clients = clients
        self.referee = Referee(clients)
        self.stores = self.referee.stores
        self._quorums: dict[str, SimulatedQuorum] = {}
        look = clients.loop.watch

        def watch() -> None:
            look()
            self.referee.look()

        clients.loop.watch = watch
        clients.judges.append(self.referee.judge)
        if begun:
            record = joined(list_of([store.place for store in self.stores]), "")
            for store in self.stores:
                store.enlist(record, round(TTL * 1000))

    def quorum(self, me: Thread) -> SimulatedQuorum:
        """Return the quorum of a thread's process."""
        found = self._quorums.get(me.client.name)
        if found is None:
            me.client.runtime.observer = None
            found = self._quorums[me.client.name] = SimulatedQuorum(me.client, self.stores)
        return found

    # --- what the clients do -----------------------------------------------------------------

    def lease(self, me: Thread, **options: Any) -> QuorumLease:
        return self.quorum(me).lease(NAME, **{"ttl": TTL, **options})

    @contextmanager
    def holding(self, me: Thread, lease: QuorumLease | Leadership, wait: float) -> Iterator[bool]:
        """Do something with the lease, or without, if it is not acquired."""
        if isinstance(lease, Leadership):
            had = lease.begin(wait) is None
        else:
            had = lease.acquire(timeout=wait)
        if not had:
            me.note(f"has not {NAME}")
            yield False
            return
        hold = lease._holds.last
        assert hold is not None
        self.referee.begin(me, hold)
        try:
            yield True
        except GreenletExit:
            raise
        except BaseException:
            self.referee.end(me)
            with me._beside_another():
                lease.release()
            raise
        self.referee.end(me)
        lease.release()

    def hold(self, me: Thread, *, wait: float = 30.0, seconds: float = 0.05, **options: Any) -> int:
        """Have the name for a while; return the fence, 0 if that was in vain."""
        lease = self.lease(me, **options)
        with self.holding(me, lease, wait) as had:
            if not had:
                return 0
            fence = lease.fence
            me.work(seconds, lease)
        return fence

    def election(self, me: Thread) -> QuorumElection:
        return cast(QuorumElection, self.quorum(me).election(NAME, ttl=TTL, label=me.name))

    def lead(self, me: Thread, numbers: Sequence[int]) -> None:
        """Lead for a while, and proclaim some numbers."""
        term = self.election(me).stand()
        with self.holding(me, term, 30.0) as leads:
            for number in numbers if leads else ():
                term.proclaim(number)
                self.referee.proclaimed(me, number)
                me.work(2, term)

    # --- what becomes of the databases -------------------------------------------------------

    def away(self, *numbers: int) -> None:
        """Let nobody reach these members any more, and all the others again."""
        for number, store in enumerate(self.stores):
            store.reached_by = frozenset() if number in numbers else None

    def restore(self, number: int, copy: object, operator: Thread) -> None:
        """Put a member back to a copy, and let it join again before any other can reach it."""
        store = self.stores[number]
        store.reached_by = frozenset({operator.client.name})
        store.bring_back(copy)
        self.referee.forgot(number)
        operator.work(1.0)
        pause = self.quorum(operator).rejoin(number)
        operator.note(f"waits {pause:g}")
        store.reached_by = None
