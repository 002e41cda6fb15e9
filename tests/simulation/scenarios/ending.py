"""How holds end: by release, later, by force, within reentrant ones."""

from __future__ import annotations

from dblock import DeadlockDetected, LockLost
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
                me.work(0.5, lease)
                me.write(lease)
                me.work(1.0, lease)

    clients.thread("a", holder, may=(LockLost,))
    clients.thread("b", once, after=0.1, may=(LockLost,))
    clients.thread("c", lambda me: me.force(NAME), after=0.3)


def later(clients: Clients) -> None:
    """It is given back, and kept from everybody for a while."""

    def keeping(me: Thread) -> None:
        lease = me.lease(NAME, ttl=3)
        if me.acquire(lease, 0):
            me.work(0.1)
            me.release(lease, after=1.0)

    clients.thread("a", keeping)
    clients.thread("b", once, after=0.01)


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
    "given-back-later": Scenario(later),
    "reentrant": Scenario(reentrant),
    "self-wait": Scenario(self_wait),
}
