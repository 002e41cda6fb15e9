"""How holds end: by release, later, by force, within reentrant ones."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from dblock import DeadlockDetected, Leadership, Lease, LockLost, NotHeld
from tests.simulation.lending import lent
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread


def forced(clients: Clients) -> None:
    """Somebody releases it by force: its holder is told, and does not release the next hold."""

    def holder(me: Thread) -> None:
        lease = me.lease(NAME, ttl=3)
        with me.holding(lease, 0) as had:
            if had:
                me.work(0.2, lease)
                me.write(lease)
                me.work(1.0, lease)

    clients.thread("a", holder, may=(LockLost,))
    clients.thread("b", once, after=0.1, may=(LockLost,))
    clients.thread("c", lambda me: me.force(NAME), after=0.15)


def forced_long(clients: Clients) -> None:
    """The same, and the next one has it for so long that the holder before would renew it."""

    def long(me: Thread) -> None:
        lease = me.lease(NAME, ttl=3)
        with me.holding(lease, 30) as had:
            if had:
                me.work(1.5, lease)

    clients.thread("a", long, may=(LockLost,))
    clients.thread("b", long, after=0.1, may=(LockLost,))
    clients.thread("c", lambda me: me.force(NAME), after=0.15)


def later(clients: Clients) -> None:
    """It is given back, and kept from everybody for a while."""

    def keeping(me: Thread) -> None:
        lease = me.lease(NAME, ttl=3)
        if me.acquire(lease, 0):
            me.work(0.05)
            me.release(lease, after=1.0)

    clients.thread("a", keeping)
    clients.thread("b", once, after=0.8)


def later_renewed(clients: Clients) -> None:
    """It is given back while it is renewed, if that takes a moment, and kept for less."""

    def keeping(me: Thread) -> None:
        lease = me.lease(NAME, ttl=3)
        if me.acquire(lease, 0):
            me.work(0.8)
            hold = lease._current()
            while me.loop.now < 1.2 and hold is not None and not hold.renewing:
                me.work(0.02)
            me.release(lease, after=0.5)

    clients.thread("a", keeping)
    clients.thread("b", once, after=1.1)


def anothers(clients: Clients) -> None:
    """A thread gives back what another one has taken: where the hold is the handle's it may."""
    handles: list[Lease] = []
    owners: list[Thread] = []

    def taking(me: Thread) -> None:
        owners.append(me)
        handles.extend(me.lease(name, ttl=6, reentrant=name == "y") for name in (NAME, "y"))
        if all(me.acquire(lease, 0) for lease in handles):
            me.work(0.3)
            me.release(handles[1])

    def releasing(me: Thread) -> None:
        if not all(me.beliefs.believed(name) for name in (NAME, "y")):
            return
        mine, private = handles
        if private.held or not mine.held:
            raise Violation(f"{me.name} is told wrongly what it holds")
        try:
            private.release()
        except NotHeld:
            me.beliefs.end(owners[0], NAME)
            me.release(mine)
        else:
            raise Violation(f"{me.name} gives back what only another thread may")

    clients.thread("a", taking)
    clients.thread("a", releasing, after=0.1)
    clients.thread("b", once, after=0.002)


def released_at_once(clients: Clients) -> None:
    """Two threads give back the same hold: one of them has done it."""
    handles: list[Lease] = []
    done: list[str] = []

    def taking(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        if me.acquire(lease, 0):
            me.work(0.05)
            me.beliefs.end(me, NAME)
            me.ledger.left.add(lease._holds.get().token)
            handles.append(lease)
            me.work(0.05)

    def releasing(me: Thread) -> None:
        for lease in handles:
            try:
                lease.release()
            except NotHeld:
                continue
            if done:
                raise Violation(f"{done[0]} and {me.name} have both given {NAME!r} back")
            done.append(me.name)

    clients.thread("a", taking)
    for _ in range(2):
        clients.thread("a", releasing, after=0.08)
    clients.thread("b", once, after=0.002)


def used_while_given_back(clients: Clients) -> None:
    """A thread gives back what another one renews, guards and proclaims with: nothing is lost."""
    terms: list[Leadership] = []

    def leading(me: Thread) -> None:
        term = me.term(NAME, ttl=6)
        if me.acquire(term, 0):
            terms.append(term)
            me.work(0.05)
            me.release(term)

    def guard(me: Thread, term: Leadership) -> None:
        if "lending" in me.ledger.store.has:
            with me.transaction() as connection, lent(connection):
                term.guard(connection).__enter__()

    def using(me: Thread) -> None:
        uses = (
            lambda term: term.proclaim("x"),
            partial(guard, me),
            Leadership.renew,
            Leadership.check,
        )
        for term in terms:
            with suppress(NotHeld):
                for _ in range(5):
                    for use in uses:
                        use(term)
                        me.work(0.001)

    clients.thread("a", leading)
    clients.thread("a", using, after=0.04)


def reentrant(clients: Clients) -> None:
    """A thread takes again what it has, without asking; another one waits."""
    lease = None

    def nested(me: Thread) -> None:
        nonlocal lease
        lease = lease or me.lease(NAME, ttl=6, reentrant=True)
        with me.holding(lease, 30) as had:
            if had:
                steps = len(me.loop.steps)
                with lease:
                    pass
                if len(me.loop.steps) > steps or not lease.held:
                    raise Violation("a reentrant hold is taken again otherwise than by counting")
                me.work(0.05, lease)

    clients.thread("a", nested)
    clients.thread("a", nested, after=0.001)
    clients.thread("b", once, after=0.002)


def self_wait(clients: Clients) -> None:
    """A thread would wait for itself: it is told at once."""

    def waiting(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 30) as had:
            if had:
                steps, other = len(me.loop.steps), me.lease(NAME, ttl=6)
                if me.acquire(other, 0):
                    raise Violation("two leases of one thread are on the same name")
                try:
                    me.acquire(other)
                    raise Violation("a thread that waits for itself got what it waits for")
                except DeadlockDetected:
                    pass
                if len(me.loop.steps) > steps:
                    raise Violation("the database is asked about a thread that waits for itself")
                me.work(0.05)

    clients.thread("a", waiting)
    clients.thread("b", once, after=0.001)


SCENARIOS = {
    "forced": Scenario(forced),
    "forced-long": Scenario(forced_long),
    "given-back-later": Scenario(later),
    "given-back-while-renewed": Scenario(later_renewed),
    "anothers": Scenario(anothers),
    "released-at-once": Scenario(released_at_once),
    "used-while-given-back": Scenario(used_while_given_back),
    "reentrant": Scenario(reentrant),
    "self-wait": Scenario(self_wait),
}
