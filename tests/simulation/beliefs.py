"""What the clients believe: who has what since when, by what the library tells them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakSet

from dblock import LockLost, RowLock, SharedLease
from dblock.handles.attached import AttachedLease
from dblock.handles.held import HeldLease
from dblock.holding.lease_hold import LeaseHold
from dblock.protocol.observer import Belief as Observed
from dblock.protocol.observer import Change
from dblock.protocol.term import Term
from tests.simulation.allowance import Allowance
from tests.simulation.knowing import Doubt, Knowing
from tests.simulation.ledger import Ledger, own
from tests.simulation.loop import Actor, Loop, Violation
from tests.simulation.store import RESTART
from tests.simulation.transport import Link

if TYPE_CHECKING:
    from dblock.protocol.schedule import Danger
    from tests.simulation.thread import Thread

#: What happens at one moment happens within this, in seconds.
MOMENT = 0.001


@dataclass(slots=True, eq=False)
class Belief:
    """A thread that takes itself for a holder: of a lease, or of a row locked on a connection."""

    thread: Thread
    name: str
    since: float
    lease: LeaseHold | None = None
    link: Link | None = None
    #: Since when it is known to be lost.
    lost: float | None = None

    def lasts(self) -> bool:
        """Whether the client would say so now: by its own clock, stopped or not.

        The holder of a row lock cannot know that its session has ended before it asks.
        """
        if not self.thread.client.alive:
            return False
        if self.lease is not None:
            return self.lease.keepable(self.thread.client.now())
        assert self.link is not None
        return not self.link.ended

    def __str__(self) -> str:
        fence = "" if self.lease is None else f" with {self.lease.fence}"
        return f"{self.thread.name} since {self.since:.4f}{fence}"


@dataclass(slots=True, eq=False)
class Wait:
    """A thread that waits for a name, until some moment of the loop at most."""

    thread: Thread
    name: str
    since: float
    until: float | None
    #: In the strict order of arrival.
    fair: bool = False
    #: Since when it stands in the queue.
    joined: float | None = None
    #: How often others had the name who began to wait later.
    overtaken: int = 0

    @property
    def able(self) -> bool:
        client = self.thread.client
        return client.alive and client.paused_until <= client.loop.now

    @property
    def able_since(self) -> float:
        return max(self.since, self.thread.client.paused_until)


class Beliefs:
    """The beliefs and waits of one run. Nobody believes what another does: promise 1."""

    def __init__(self, loop: Loop, allowance: Allowance) -> None:
        self.loop = loop
        self.allowance = allowance
        self.ledger: Ledger
        self.knowing: Knowing
        self.story: list[str] = []
        self.waits: list[Wait] = []
        #: When a name was given back last.
        self.given_back: dict[str, float] = {}
        #: When a transaction of the users' ended last that had locked or changed anything.
        self.transacted = -math.inf
        #: Who has waited for which name in vain, and does not any more.
        self.gave_up: set[tuple[Actor, str]] = set()
        self._now: defaultdict[str, list[Belief]] = defaultdict(list)
        self._fences: dict[str, int] = {}
        self._tokens: dict[str, str] = {}
        #: How often each loss was told, by its own identity; and the losses, so that they last.
        self._told: Counter[int] = Counter()
        self._losses: list[LockLost] = []
        #: What whoever observes is told: tokens, and whether the belief in them has ended.
        self._observed: dict[str, bool] = {}
        self._terms: dict[str, float] = {}
        #: What the clients have had, as long as they know of it.
        self.holds: WeakSet[LeaseHold] = WeakSet()
        #: What was given back, and told to have been.
        self.released: list[LeaseHold] = []

    def note(self, what: str) -> None:
        if not self.loop.over:
            self.story.append(what)

    # --- from here to there ------------------------------------------------------------------

    def begin(self, thread: Thread, lock: HeldLease | RowLock) -> None:
        belief = Belief(thread, lock.name, self.loop.now)
        if isinstance(lock, HeldLease):
            belief.lease = lock._holds.last
            assert belief.lease is not None
            self.holds.add(belief.lease)
            grant = self.ledger.grants.get(own(belief.lease))
            doubt = self.knowing.doubt(thread.actor, lock.name)
            if grant is not None and grant.passed and doubt is Doubt.OPEN:
                raise Violation(f"{belief} believes what it was passed, and is in doubt of a try")
            if not self.ledger.store.vouches(lock.name, belief.lease.token):
                raise Violation(f"{belief} has what no standby knows of")
            if belief.lease.lease.fence < self.knowing.seen(thread.actor, lock.name):
                raise Violation(f"{belief} has seen a later hold of {lock.name!r}")
            self.note(f"{thread.name} has {lock.name} {belief.lease.fence}")
        else:
            belief.link = _link(thread, lock)
            self.note(f"{thread.name} has the row {lock.name}")
        self._now[lock.name].append(belief)
        if belief.lease is not None and belief.lasts() and not self._was_forced(belief):
            fence, last = belief.lease.lease.fence, self._fences.get(lock.name, 0)
            token, again = belief.lease.token, isinstance(lock, AttachedLease | SharedLease)
            if isinstance(lock, SharedLease):
                again = token == self._tokens.get(lock.name)
            if fence < last or (fence == last and not again):
                raise Violation(f"a fence comes again: {fence} after {last}")
            self._fences[lock.name], self._tokens[lock.name] = fence, token
        self._check(lock.name, self._now[lock.name])

    def end(self, thread: Thread, name: str) -> Belief | None:
        """A thread begins to give a lock back."""
        belief = next((one for one in self._now[name] if one.thread is thread), None)
        if belief is not None:
            self.note(f"{thread.name} gives {name} back")
            self._now[name].remove(belief)
            self.given_back[name] = self.loop.now
        return belief

    def end_all(self, thread: Thread, link: Link) -> None:
        """A thread begins to end its transaction."""
        for name, believed in self._now.items():
            if any(one.thread is thread and one.link is link for one in believed):
                self.end(thread, name)

    def holds_any(self, thread: Thread) -> bool:
        """Whether a thread takes itself for the holder of anything."""
        return any(one.thread is thread for believed in self._now.values() for one in believed)

    def believed(self, name: str) -> list[Belief]:
        return [belief for belief in self._now[name] if belief.lasts()]

    @contextmanager
    def waiting(
        self, thread: Thread, name: str, seconds: float | None, *, fair: bool = False
    ) -> Iterator[None]:
        """A thread waits for a name, so long."""
        now = self.loop.now
        until = None if seconds is None else now + seconds / thread.client.rate
        wait = Wait(thread, name, now, until, fair)
        self.gave_up.discard((thread.actor, name))
        self.waits.append(wait)
        try:
            yield
        finally:
            self.waits.remove(wait)

    # --- after every event -------------------------------------------------------------------

    def check(self) -> None:
        for name, believed in self._now.items():
            if believed:
                self._check(name, believed)

    def _check(self, name: str, believed: list[Belief]) -> None:
        lasting = [belief for belief in believed if belief.lasts()]
        # Whose lease was released by force learns of it later.
        holding = [one for one in lasting if not self._was_forced(one)]
        if len(holding) > 1 and not _share(holding):
            raise Violation(f"two hold {name!r}: {' and '.join(map(str, holding))}")
        for belief in believed:
            if belief.lease is not None:
                self._check_lease(belief, belief.lease, belief in lasting)
        for belief in lasting:
            store = self.ledger.store
            if belief.link is not None and not store.in_transaction(belief.link.driver):
                raise Violation(f"{belief} takes {name!r} for locked, outside any transaction")

    def _lasts_too_long(self, belief: Belief, hold: LeaseHold) -> bool:
        """Whether a term ends too late: also where it is going to be renewed before that.

        Where clocks go alike it is over, the margin included, when the database says so.
        """
        client, store, term = belief.thread.client, self.ledger.store, hold.lease.term
        row = self.ledger.rows[belief.name]
        assert row.expires is not None
        alike = client.rate == store.rate and not store.ahead
        end = term.start + term.ttl if alike else term.deadline
        left = (row.expires - store.clock()) / store.rate
        return (end - client.now()) / client.rate > left + MOMENT

    def _was_forced(self, belief: Belief) -> bool:
        return belief.lease is not None and own(belief.lease) in self.ledger.forced

    def _check_lease(self, belief: Belief, hold: LeaseHold, lasts: bool) -> None:
        client, now = belief.thread.client, self.loop.now
        if lasts:
            # Promise 5: the holder's own deadline comes before the expiry.
            known = self._was_forced(belief) or self.ledger.is_forgotten(own(hold))
            if not known and not self.ledger.has(belief.name, own(hold)):
                raise Violation(f"{belief} takes itself for the holder of {belief.name!r}")
            if not known and self._lasts_too_long(belief, hold):
                raise Violation(f"the term of {belief} ends after {belief.name!r} has run out")
        if hold.loss is not None and belief.lost is None:
            belief.lost = now
        if not client.alive or hold.ended or now < client.paused_until + MOMENT:
            return
        # Promise 8, for a process that runs.
        term, schedule = hold.lease.term, hold.schedule
        if hold.loss is None and client.now() > min(term.deadline, schedule.danger):
            late = MOMENT + self.allowance.late(f"{client.name}.timer")
            before = client.now() - late * client.rate
            if before > max(hold.since, term.deadline):
                raise Violation(f"the loss of {belief} was not told")
            if before > max(hold.since, schedule.danger) and not schedule.warned:
                raise Violation(f"the danger of {belief} was not told")
        on_lost = hold.callbacks.on_lost
        if belief.lost is not None and on_lost is not None and not self.was_told(hold.loss):
            late = MOMENT + self.allowance.late(f"{client.name}.callbacks")
            if now > max(belief.lost, client.paused_until) + late:
                raise Violation(f"{belief} was not called when it was lost")

    # --- what callbacks are told -------------------------------------------------------------

    def tell_lost(self, thread: Thread, loss: LockLost) -> None:
        """on_lost was called."""
        self.note(f"{thread.name} lost {loss.name}: {loss.reason}")
        hold = next((hold for hold in self.holds if hold.loss is loss), None)
        if hold is not None:
            self._check_loss(thread, hold, loss)
        self._losses.append(loss)
        self._told[id(loss)] += 1
        if self._told[id(loss)] > 1:
            self.loop.accuse(f"{thread.name} was told twice that it lost {loss.name!r}")

    def _check_loss(self, thread: Thread, hold: LeaseHold, loss: LockLost) -> None:
        """Nobody is told that a hold is lost which is there, nor for another reason than is so."""
        if loss.reason in ("expired", "unreachable"):
            wrong = not hold.lease.term.over(thread.client.now())
        elif loss.reason == "failover":
            moved = self.ledger.grants[own(hold)].server != self.ledger.store.identity
            wrong = not (self.allowance.fails_over or moved)
        elif loss.reason == "forced":
            # Who leaves it to run out may be told so where the reply to that is lost.
            known = self.ledger.forced | self.ledger.leaving
            wrong = own(hold) not in known and thread.client.rate == self.ledger.store.rate
        else:
            wrong = loss.reason != "unknown" and self.ledger.has(hold.name, own(hold))
        if loss.reason == "taken over":
            wrong = wrong or self._was_forced_early(thread, hold)
        if wrong:
            self.loop.accuse(f"{thread.name} is told that {hold.name!r} is lost: {loss}")

    def _was_forced_early(self, thread: Thread, hold: LeaseHold) -> bool:
        """Whether another had it, by force, long before it would have run out."""
        if own(hold) not in self.ledger.forced or not self.allowance.answered:
            return False
        at = max(grant.at for grant in self.ledger.grants.values() if grant.name == hold.name)
        unsure = 0.1 + 0.25 * (self.loop.now - at)  # clocks go at different rates
        return thread.client.at(at) < hold.lease.term.deadline - unsure

    def tell_danger(self, thread: Thread, danger: Danger) -> None:
        """on_danger was called."""
        self.note(f"{thread.name} in danger of losing {danger.name}")
        about = danger.name, danger.fence
        hold = next((one for one in self.holds if (one.name, one.lease.fence) == about), None)
        if hold is not None and self.allowance.quiet and hold.schedule.due < math.inf:
            self.loop.accuse(f"{thread.name} is in danger of losing {danger.name!r}, for no reason")

    # --- what whoever observes is told -------------------------------------------------------

    def observe(self, belief: Observed, change: Change) -> None:
        """A belief of a client's has changed."""
        token = belief.token
        if token is None:
            return
        over = self._observed.get(token)
        wrong = over is not (None if change is Change.GRANTED else False)
        if change is Change.GRANTED and belief.term is not None:
            wrong = wrong or belief.term.over(self.ledger.grants[token].actor.client.now())
        self._observed[token] = change not in (Change.GRANTED, Change.RENEWED)
        if change is Change.RENEWED and belief.term is not None:
            before, self._terms[token] = self._terms.get(token, 0.0), belief.term.deadline
            if belief.term.deadline > before:  # it is shortened before anybody is asked
                wrong = wrong or self._is_in_vain(belief.name, token, belief.term)
                wrong = wrong or self._is_anothers(token, belief.term)
        if wrong:
            self.loop.accuse(f"a belief in {belief.name!r} is {change}, which is not so")

    def _is_anothers(self, token: str, term: Term) -> bool:
        """Whether another server than granted it was asked for a term."""
        grant, store = self.ledger.grants[token], self.ledger.store
        moved = store.down_until - RESTART
        return grant.server != store.identity and grant.actor.client.at(moved) < term.start

    def _is_in_vain(self, name: str, token: str, term: Term) -> bool:
        """Whether a later term is believed, which was asked for when the name was gone."""
        if self.ledger.has(name, token) or self.ledger.is_forgotten(token):
            return False
        client, gone = self.ledger.grants[token].actor.client, self.ledger.gone.get(token)
        return gone is not None and client.at(gone) < term.start and not term.over(client.now())

    def check_freed(self, name: str, token: str, actor: Actor) -> None:
        """Who gives a name back does not believe in it any more."""
        if (
            actor.client.alive
            and token not in self.ledger.forced
            and not self._observed.get(token, True)
        ):
            raise Violation(f"{actor.name} gives {name!r} back, and believes in it")

    def was_told(self, loss: LockLost | None) -> bool:
        return self._told[id(loss)] > 0


def _share(holding: Sequence[Belief]) -> bool:
    """Whether all of them are readers, who share one hold."""
    leases = [one.lease for one in holding if one.lease is not None and one.lease.reader]
    return len(leases) == len(holding) and len({lease.token for lease in leases}) == 1


def _link(thread: Thread, lock: RowLock) -> Link:
    """Return the connection whose transaction a row lock is in."""
    if lock._on is not None:
        link: Link = lock._on.connection.driver_connection.link  # type: ignore[union-attr]
        return link
    hold = lock._holds.last
    assert hold is not None
    connection = hold.transaction._connection
    assert connection is not None
    return thread.client.link(connection.driver)
