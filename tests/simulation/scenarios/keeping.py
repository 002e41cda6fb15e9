"""A hold that lasts: renewed, in time or not, by clocks that differ."""

from __future__ import annotations

from dblock import LockLost, Unavailable
from tests.simulation.beliefs import MOMENT
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread


def _long(me: Thread) -> None:
    lease = me.lease(NAME, ttl=3)
    with me.holding(lease, 0) as had:
        if had:
            for _ in range(4):
                me.work(1.0, lease)


def long_work(clients: Clients) -> None:
    """Somebody works for longer than its TTL, and another waits."""
    clients.thread("a", _long)
    clients.thread("b", once, after=3.2)


def alone(clients: Clients) -> None:
    """The same, and nobody waits."""
    clients.thread("a", _long)


def slow_holder(clients: Clients) -> None:
    """The same; the holder's clock is too slow, the other's too fast."""
    clients.thread("a", _long, rate=0.92)
    clients.thread("b", once, after=3.2, rate=1.1)


def _not_renewed(me: Thread) -> None:
    """Work until the lease is lost, and hear of that."""
    lease = me.lease(NAME, ttl=2, renew=False)
    with me.holding(lease, 0) as had:
        if had:
            while lease.held:
                me.locks._database.runtime.wait(lease.lost, 0.5)
            if not (lease.lost.is_set() or me.allowance.late(f"{me.name}.timer")):
                raise Violation(f"{me.name} does not hold {NAME!r}, and is not told")


def run_out(clients: Clients) -> None:
    """A lease is not renewed: its holder is told in time, and another has it then."""
    clients.thread("a", _not_renewed, may=(LockLost,))
    clients.thread("b", once, after=1.5)


def run_out_slowly(clients: Clients) -> None:
    """The same, by a clock that is too slow."""
    clients.thread("a", _not_renewed, may=(LockLost,), rate=0.92)
    clients.thread("b", once, after=1.5)


def dropped(clients: Clients) -> None:
    """A handle is dropped with its hold, which nobody renews then."""

    def careless(me: Thread) -> None:
        if me.acquire(me.lease(NAME, ttl=2), 0):
            me.beliefs.end(me, NAME)
            me.ledger.left.add(me.ledger.rows[NAME].token or "")

    def patient(me: Thread) -> None:
        patience = 5 + me.allowance.total + me.allowance.stops
        with me.holding(me.lease(NAME, ttl=6), patience) as had:
            row = me.ledger.rows.get(NAME)
            kept = row is not None and not row.free(me.ledger.store.clock())
            grant = me.ledger.grants.get(row.token or "") if row and kept else None
            if not had and grant is not None and grant.at < me.loop.now - 5:
                raise Violation(f"{NAME!r} is kept, although its handle was dropped")

    clients.thread("a", careless)
    clients.thread("b", patient, after=1.5)


def by_hand(clients: Clients) -> None:
    """The holder renews itself: for longer, then for a shorter time."""

    def renewing(me: Thread) -> None:
        lease = me.lease(NAME, ttl=2)
        with me.holding(lease, 0) as had:
            if had:
                with me.calling("renew"):
                    lease.renew(5)
                me.work(1.0, lease)
                with me.calling("renew"):
                    lease.renew(1)
                me.work(0.5, lease)

    clients.thread("a", renewing)
    clients.thread("b", once, after=1.0)


def by_hand_alone(clients: Clients) -> None:
    """The holder renews itself, and nobody waits: what has run out is not brought back to life."""

    def renewing(me: Thread) -> None:
        lease = me.lease(NAME, ttl=2, renew=False)
        with me.holding(lease, 0) as had:
            if had:
                for _ in range(2):
                    me.work(0.5, lease)
                    with me.calling("renew"):
                        lease.renew()

    clients.thread("a", renewing, may=(LockLost,))


def renewed_once(clients: Clients) -> None:
    """The holder renews once, and believes in it to the end of that term."""

    def renewing(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6, renew=False)
        if me.acquire(lease, 0):
            me.work(0.5, lease)
            lease.renew()
            while lease.held:
                me.work(0.5)
            me.release(lease)

    clients.thread("a", renewing, may=(LockLost,))


def max_hold(clients: Clients) -> None:
    """A hold is to last no longer than so many seconds, however long the work is."""

    def bounded(me: Thread) -> None:
        lease, began = me.lease(NAME, ttl=1.5, max_hold=1.83), me.loop.now
        with me.holding(lease, 0) as had:
            if had:
                while not lease.lost.is_set() and me.loop.now < 4:
                    row = me.ledger.rows.get(NAME)
                    latest = began + 1.83 + MOMENT + me.allowance.total
                    if row is not None and row.fence == 1 and (row.expires or 0.0) > latest:
                        raise Violation(f"{NAME!r} is held until {row.expires}, not {latest}")
                    me.locks._database.runtime.wait(lease.lost, 0.2)

    clients.thread("a", bounded, may=(LockLost,))
    clients.thread("b", once, after=1.6)


def away(clients: Clients) -> None:
    """The database is away for longer than a lease lasts: its holder is told so."""

    def losing(me: Thread) -> None:
        lease = me.locks.lease(NAME, ttl=3)  # its danger is told, and has a reason
        if me.acquire(lease, 0):
            me.locks._database.runtime.wait(lease.lost, 6)
            hold = lease._current()
            loss = None if hold is None else hold.loss
            if me.allowance.quiet and (loss is None or loss.reason != "unreachable"):
                raise Violation(f"{me.name} is not told that the database is away: {loss}")
            me.beliefs.end(me, NAME)
            me.ledger.left.add(hold.token if hold else "")

    def stopping(me: Thread) -> None:
        if me.beliefs.believed(NAME):
            me.ledger.store.go_down()
            me.ledger.store.down_until = me.loop.now + 5

    clients.thread("a", losing, may=(Unavailable,))
    clients.thread("b", stopping, after=0.5)


SCENARIOS = {
    "long-work": Scenario(long_work),
    "alone": Scenario(alone),
    "slow-holder": Scenario(slow_holder),
    "fast-database": Scenario(long_work, rate=1.09),
    "slow-database": Scenario(long_work, rate=0.9),
    "run-out": Scenario(run_out),
    "run-out-slowly": Scenario(run_out_slowly),
    "dropped-handle": Scenario(dropped),
    "renewed-by-hand": Scenario(by_hand),
    "renewed-by-hand-alone": Scenario(by_hand_alone),
    "away": Scenario(away),
    "renewed-once": Scenario(renewed_once),
    "max-hold": Scenario(max_hold),
}
