"""Names that are passed on: what is believed of the message that tells it, and for how long."""

from __future__ import annotations

from functools import partial

from sqlalchemy import text

from dblock import LockLost, OutcomeUnknown
from dblock.protocol.faults import Fault
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread


def _holding(seconds: float, me: Thread) -> None:
    """Have it, however that is: nobody is asked whether it is believed."""
    lease = me.locks.lease(NAME, ttl=9)
    if lease.acquire(timeout=0):
        me.work(seconds)
        lease.release()


def passed_on_late(clients: Clients) -> None:
    """It is passed on long after the next in the queue has looked."""
    clients.thread("a", partial(_holding, 1.9))
    clients.thread("b", once, after=0.001)


def set_forward(clients: Clients) -> None:
    """The same, and the database's clock is set forward meanwhile: by more than leases allow for,
    so that nothing else may be late."""

    def setting(me: Thread) -> None:
        if me.allowance.quiet:
            me.ledger.store.ahead += 1.0

    passed_on_late(clients)
    clients.thread("c", setting, after=1.0)


def passed_to_who_does_not_renew(clients: Clients) -> None:
    """It is passed on to one that does not renew it, or not as often as it likes: for its TTL."""

    def keeping(seconds: float, renewals: int, me: Thread) -> None:
        lease = me.lease(NAME, ttl=seconds, renew=renewals > 0, max_renewals=renewals)
        with me.holding(lease, 30) as had:
            if had:
                me.work(3.5, lease)

    clients.thread("a", once)
    clients.thread("b", partial(keeping, 6, 0), after=0.001)
    clients.thread("c", partial(keeping, 3, 1), after=0.002)


def passed_on_in_vain(clients: Clients) -> None:
    """It is passed on, freed by force, and another's before the next in the queue looks."""

    def quick(me: Thread) -> None:
        me.force(NAME)
        _holding(3, me)

    clients.thread("a", partial(_holding, 1.95), may=(LockLost,))
    clients.thread("b", once, after=0.001, may=(LockLost,))
    clients.thread("c", quick, after=1.96, may=(LockLost,))


def unending(clients: Clients) -> None:
    """Nobody may end a session that was lost, so that what it was sent may come at any time."""
    clients.store.refused = {"end_session": Fault.PRIVILEGE}
    clients.thread("a", partial(_holding, 0.3), may=(OutcomeUnknown,))
    clients.thread("b", once, after=0.001)


def passed_by(clients: Clients) -> None:
    """One gives up while a stranger has the row, so that it cannot leave the queue."""

    def impatient(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        if me.acquire(lease, 0.6, settling=1.5):
            me.release(lease)

    def stranger(me: Thread) -> None:
        row = text("SELECT fence FROM dblock_lock WHERE lock_name = :name FOR UPDATE")
        with me.transaction() as connection:
            connection.execute(row, {"name": NAME})
            me.work(2.0)

    clients.thread("a", partial(_holding, 2.8))
    clients.thread("b", impatient, after=0.001)
    clients.thread("c", once, after=0.002)
    clients.thread("d", stranger, after=0.4)


#: Who waits is called.
CALLS = frozenset({"calls"})

SCENARIOS = {
    "passed-on-late": Scenario(passed_on_late, needs=CALLS),
    "passed-on-by-a-fast-clock": Scenario(passed_on_late, rate=1.09, needs=CALLS),
    "passed-on-by-a-clock-set-forward": Scenario(set_forward, needs=CALLS),
    "passed-to-who-does-not-renew": Scenario(passed_to_who_does_not_renew, needs=CALLS),
    "passed-on-in-doubt": Scenario(unending, needs=CALLS),
    "passed-by": Scenario(passed_by, needs=CALLS | {"lending", "rows"}),
    "passed-on-in-vain": Scenario(passed_on_in_vain, needs=CALLS),
}
