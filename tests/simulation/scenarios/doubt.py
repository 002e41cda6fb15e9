"""What cannot be asked, or is not answered as it should be: who is told what then."""

from __future__ import annotations

from functools import partial

from tenacity import stop_after_attempt, wait_fixed

from dblock import DBLockError, LockLost, OutcomeUnknown, RetryPolicy, Unavailable
from dblock.protocol.faults import Fault
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.stores.model import ModelStore
from tests.simulation.tables import RUNS
from tests.simulation.thread import Thread


def _left(seconds: float, me: Thread) -> None:
    """Take it for so long, and leave it."""
    lease = me.locks.lease(NAME, ttl=seconds, renew=False)
    if lease.acquire(timeout=0):
        me.ledger.left.add(lease.token)


def outage(clients: Clients) -> None:
    """The database goes away for longer than anybody tries to reach it: who waits is told."""

    def stopping(me: Thread) -> None:
        me.ledger.unknowing.update(me.loop.actors)  # nor can anybody leave then
        me.ledger.store.go_down()
        me.ledger.store.silent = True
        me.work(40)
        me.ledger.store.silent = False

    clients.thread("a", partial(_left, 10), may=(Unavailable, OutcomeUnknown))
    clients.thread("b", once, after=0.001, may=(Unavailable, OutcomeUnknown))
    clients.thread("c", stopping, after=2)


def read_only(clients: Clients) -> None:
    """The database lets nothing be written any more, as a standby does: who waits is told."""

    def turning(me: Thread) -> None:
        me.ledger.unknowing.update(me.loop.actors)  # nor can anybody leave then
        me.ledger.store.refused = dict.fromkeys(("grant", "take", "join"), Fault.READ_ONLY)

    def waiting(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        if me.acquire(lease, 1.1, settling=10):
            me.release(lease)

    clients.thread("a", partial(_left, 1), may=(Unavailable,))
    clients.thread("b", waiting, after=0.001, may=(Unavailable, OutcomeUnknown))
    clients.thread("c", turning, after=0.5)


def just_in_time(clients: Clients) -> None:
    """A lease runs out shortly before another gives up waiting for it."""

    def waiting(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 1.5):
            pass

    clients.thread("a", partial(_left, 1), may=(Unavailable,))
    clients.thread("b", waiting, after=0.001)


def unseen(clients: Clients) -> None:
    """Who waits may not write that it does: it waits all the same."""

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0) as had:
            if had:
                me.work(0.8)

    clients.store.refused = {"register": Fault.PRIVILEGE}
    clients.thread("a", holder)
    clients.thread("b", once, after=0.001)


def counted(clients: Clients) -> None:
    """Who may try once, and stands in the queue then, takes a name that has just become free."""

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0) as had:
            if had:
                me.work(0.03)

    def trying(me: Thread) -> None:
        policy = RetryPolicy(wait=wait_fixed(1), stop=stop_after_attempt(1))
        lease = me.lease(NAME, ttl=6, retry=policy)
        with me.holding(lease, 5) as had:
            order = [one for one in me.loop.steps if one in ("a.release#1", "b.join#1")]
            free = order == ["a.release#1", "b.join#1"]
            if not had and free and me.allowance.answered:
                raise Violation(f"{me.name} has tried once, and not taken what is free")

    clients.thread("a", holder)
    clients.thread("b", trying, after=0.01)


def told_late(clients: Clients) -> None:
    """Who does not renew finds out, when it gives the lease back, that it was freed by force."""

    def holder(me: Thread) -> None:
        lease = me.lease(NAME, ttl=3, renew=False)
        if me.acquire(lease, 0):
            me.work(0.5)
            me.release(lease)

    clients.thread("a", holder, may=(LockLost,))
    clients.thread("b", once, after=0.1, may=(LockLost,))
    clients.thread("c", lambda me: me.force(NAME), after=0.15)


def moved(clients: Clients) -> None:
    """Another server takes the place of the one that has granted it: its holder is told."""

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=3), 0) as had:
            if had:
                me.work(2)

    def moving(me: Thread) -> None:
        store = me.ledger.store
        assert isinstance(store, ModelStore)
        store.move()

    clients.thread("a", holder, may=(LockLost, Unavailable, OutcomeUnknown))
    clients.thread("b", moving, after=0.5)


def off_the_record(clients: Clients) -> None:
    """Somebody deletes the record of a run: its end is not told as a success."""

    def host(me: Thread) -> None:
        me.run_job("job", "today", 0.3, 3)

    def deleting(me: Thread) -> None:
        with me.transaction() as connection:
            connection.execute(RUNS.delete())

    clients.thread("a", host, may=(DBLockError,))
    clients.thread("b", deleting, after=0.1)


SCENARIOS = {
    "outage": Scenario(outage),
    "read-only": Scenario(read_only),
    "just-in-time": Scenario(just_in_time),
    "unseen": Scenario(unseen),
    "counted-tries": Scenario(counted),
    "told-late": Scenario(told_late),
    "moved": Scenario(moved, needs=frozenset({"moves"})),
    "off-the-record": Scenario(off_the_record, needs=frozenset({"runs", "lending"})),
}
