"""A guard outlives its hold: nobody has the name before the transaction with it has ended."""

from __future__ import annotations

from dblock import LockLost
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread


def released(clients: Clients) -> None:
    """A holder gives it back before it commits what it has guarded."""

    def working(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        if me.acquire(lease, 0):
            with me.transaction() as connection:
                me.guarded(connection, lease)
                me.work(0.1, lease)
                me.release(lease)
                me.work(0.2)

    clients.thread("a", working)
    clients.thread("b", once, after=0.001)


def forced(clients: Clients) -> None:
    """Somebody releases it by force before the holder commits what it has guarded."""

    def working(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        with me.holding(lease, 0) as had:
            if had:
                with me.transaction() as connection:
                    me.guarded(connection, lease)
                    me.work(0.5)

    clients.thread("a", working, may=(LockLost,))
    clients.thread("b", once, after=0.001)
    clients.thread("c", lambda me: me.force(NAME), after=0.15)


#: Others can write while a transaction is open.
NEEDS = frozenset({"lending", "rows"})

SCENARIOS = {
    "released-under-a-guard": Scenario(released, needs=NEEDS),
    "forced-under-a-guard": Scenario(forced, needs=NEEDS),
}
