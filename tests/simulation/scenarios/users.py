"""The user's own transactions: guards and commits, row locks, counters."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from sqlalchemy import text

from dblock import Conflict, LockLost
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread


def cycle(clients: Clients) -> None:
    """Two times all that a holder does: acquire, renew, guard and commit, release."""

    def working(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        with me.holding(lease, 30) as had:
            if had:
                with me.calling("renew"):
                    lease.renew()
                me.write(lease)

    for client in ("a", "b"):
        clients.thread(client, working)


def guarded_snapshot(clients: Clients) -> None:
    """A snapshot is older than the renewal of a lease, another than its grant, so that it may be
    too old for a guard."""
    clients.store.snapshots = True

    def renewing(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        with me.holding(lease, 30) as had:
            if had:
                with me.transaction() as connection:
                    with me.calling("renew"):
                        lease.renew()
                    me.guarded(connection, lease)

    def acquiring(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        try:
            with me.transaction() as connection, me.holding(lease, 30) as had:
                if had:
                    me.guarded(connection, lease)
        except Conflict:
            me.note("Conflict")

    clients.thread("a", renewing)
    clients.thread("b", acquiring)


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
    """Row locks in the users' transactions, and a lease on the same name. One of the users has
    said something in the transaction before."""

    def locking(begun: bool, me: Thread) -> None:
        try:
            with me.transaction() as connection:
                if begun:
                    connection.execute(text("SELECT 1"))
                if me.acquire(me.locks.row(NAME, on=connection), 5):
                    me.work(0.05)
        except Conflict:
            me.note("Conflict")

    clients.thread("a", partial(locking, False))
    clients.thread("b", once, after=0.001)
    clients.thread("c", partial(locking, True), after=0.002)


def borrowed_row_snapshot(clients: Clients) -> None:
    """The same, in transactions that see what there was when they began."""
    clients.store.snapshots = True
    borrowed_row(clients)


def busy_row(clients: Clients) -> None:
    """A stranger has the row of one of two leases for a while: the other one is renewed."""

    def both(me: Thread) -> None:
        one, other = me.locks.lease(NAME, ttl=3), me.lease("y", ttl=3)
        if me.acquire(one, 0) and me.acquire(other, 0):
            hold = other._current()
            for _ in range(40):
                me.work(0.1, other)
                if me.allowance.quiet and hold is not None and hold.schedule.cause is not None:
                    raise Violation(f"'y' is not renewed, since {NAME!r} is in use")
            me.beliefs.end(me, NAME)
            me.ledger.left.add(me.ledger.rows[NAME].token or "")
            with suppress(LockLost):
                one.release()
            me.release(other)

    def stranger(me: Thread) -> None:
        table = text("SELECT fence FROM dblock_lock WHERE lock_name = :name FOR UPDATE")
        with me.transaction() as connection:
            connection.execute(table, {"name": NAME})
            me.work(3.5)

    clients.thread("a", both)
    clients.thread("b", stranger, after=0.5)


def stock(clients: Clients) -> None:
    """Three take two of five each: one of them has to go without."""
    clients.stock({1: 5})
    for client in ("a", "b", "c"):
        clients.thread(client, lambda me: me.take(1, 2, f"{me.name}:1"))


def stock_snapshot(clients: Clients) -> None:
    """The same stock for all, in transactions that see what there was when they began."""
    clients.store.snapshots = True
    stock(clients)


#: They have transactions of their own.
LENDING = frozenset({"lending"})
#: Those can be made to see what there was when they began.
SNAPSHOTS = LENDING | {"snapshots"}

SCENARIOS = {
    "cycle": Scenario(cycle),
    "guarded-snapshot": Scenario(guarded_snapshot, needs=SNAPSHOTS),
    "guarded-late": Scenario(guarded_late, needs=LENDING),
    "row-and-lease": Scenario(row_and_lease),
    "borrowed-row": Scenario(borrowed_row, needs=LENDING),
    "borrowed-row-snapshot": Scenario(borrowed_row_snapshot, needs=SNAPSHOTS),
    "busy-row": Scenario(busy_row, needs=SNAPSHOTS),
    "stock": Scenario(stock, needs=LENDING),
    "stock-snapshot": Scenario(stock_snapshot, needs=SNAPSHOTS),
}
