"""The user's own transactions: guards and commits, row locks, counters."""

from __future__ import annotations

from dblock import Conflict, LockLost
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread


def guarded(clients: Clients) -> None:
    """Two times: acquire, renew, guard and commit, release."""

    def working(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        with me.holding(lease, 30) as had:
            if had:
                with me.calling("renew"):
                    lease.renew()
                me.write(lease)

    for client in ("a", "b"):
        clients.thread(client, working)


def guarded_late(clients: Clients) -> None:
    """A lease runs out within a guarded transaction, which commits all the same, or not at all."""

    def working(me: Thread) -> None:
        lease = me.lease(NAME, ttl=1, renew=False)
        with me.holding(lease, 5) as had:
            if had:
                me.work(0.7)
                with me.transaction() as connection:
                    me.guarded(connection, lease)
                    me.work(0.5)

    clients.thread("a", working, may=(LockLost,))
    clients.thread("b", once, after=0.6)


def row_and_lease(clients: Clients) -> None:
    """A row lock and a lease on the same name, and one more row lock."""

    def locking(me: Thread) -> None:
        with me.holding(me.locks.row(NAME), 5):
            me.work(0.05)

    clients.thread("a", locking)
    clients.thread("b", once, after=0.001)
    clients.thread("c", locking, after=0.002)


def borrowed_row(clients: Clients) -> None:
    """Row locks in the users' transactions, and a lease on the same name."""

    def locking(me: Thread) -> None:
        try:
            with me.transaction() as connection:
                if me.acquire(me.locks.row(NAME, on=connection), 5):
                    me.work(0.05)
        except Conflict:
            me.note("Conflict")

    clients.thread("a", locking)
    clients.thread("b", once, after=0.001)
    clients.thread("c", locking, after=0.002)


def stock(clients: Clients) -> None:
    """Three take two of five each: one of them has to go without."""
    clients.stock({1: 5})
    for client in ("a", "b", "c"):
        clients.thread(client, lambda me: me.take(1, 2, f"{me.name}:1"))


#: They have transactions of their own.
LENDING = frozenset({"lending"})

SCENARIOS = {
    "guarded": Scenario(guarded, needs=LENDING),
    "guarded-late": Scenario(guarded_late, needs=LENDING),
    "row-and-lease": Scenario(row_and_lease, needs=LENDING),
    "borrowed-row": Scenario(borrowed_row, needs=LENDING),
    "stock": Scenario(stock, needs=LENDING),
}
