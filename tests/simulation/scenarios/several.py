"""Several names at once, and jobs that several hosts start."""

from __future__ import annotations

from dblock import DeadlockDetected, LockLost, NotAcquired
from tests.simulation.beliefs import MOMENT
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.thread import Thread


def _both(first: str, second: str, me: Thread) -> None:
    """Take two names, one after the other; begin again when they would be waited for for ever."""
    while True:
        one, other = me.lease(first, ttl=6), me.lease(second, ttl=6)
        try:
            with me.holding(one) as had:
                if had:
                    me.work(0.02)
                    with me.holding(other):
                        me.work(0.02)
            return
        except DeadlockDetected:
            me.note("begins again")
            me.work(0.2)


def both_orders(clients: Clients) -> None:
    """Two take the same two names, each in its own order: one is told."""
    clients.thread("a", lambda me: _both("x", "y", me))
    clients.thread("b", lambda me: _both("y", "x", me))


def together(clients: Clients) -> None:
    """Two take the same two names as one, and a third takes one of them."""

    def all_of_them(*names: str) -> None:
        def taking(me: Thread) -> None:
            leases = [me.lease(name, ttl=6) for name in names]
            lock = me.locks.all(*leases, wait=5)
            with me.calling("taking all", 5):
                try:
                    lock.__enter__()
                except NotAcquired:
                    me.note("has not all")
                    return
            for lease in lock.locks:
                me.beliefs.begin(me, lease)
            me.work(0.05, *leases)
            for name in names:
                me.beliefs.end(me, name)
            lock.release()

        clients.thread("abc"[len(clients.all)], taking, after=0.001 * len(clients.all))

    all_of_them("y", "x")
    all_of_them("x", "y")
    all_of_them("y")


def slot(clients: Clients) -> None:
    """Three hosts start a job, and one of them runs it."""

    def host(me: Thread) -> None:
        me.run_job("job", "today", 0.1, 3)

    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, host, after=0.04 * number)


def slot_waited_for(clients: Clients) -> None:
    """The same, but the others wait: one run that fails is another's to repeat."""
    failed = False

    def host(me: Thread) -> None:
        nonlocal failed
        if not failed and me.name == "a":
            failed = True
            try:
                me.run_job("job", "today", 0.1, 3, 10, fails=True)
            except ZeroDivisionError:
                me.note("failed")
        else:
            me.run_job("job", "today", 0.1, 3, 10)

    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, host, after=0.04 * number)


def at_least(clients: Clients) -> None:
    """A run that is over at once keeps the name for as long as it was to last."""
    begun: list[float] = []

    def starting(me: Thread) -> None:
        def job() -> None:
            now = me.loop.now
            least = 1.0 - MOMENT - me.allowance.total
            if begun and now - begun[-1] < least:
                raise Violation(f"runs begin {now - begun[-1]:.2f} s apart, not one at least")
            begun.append(now)
            me.ledger.left.add(host.lease.token)

        host = me.locks.cron("job", 3, 10, at_least=1.0)(job)
        host()

    for number, client in enumerate(("a", "b")):
        clients.thread(client, starting, after=0.04 * number, may=(LockLost,))


#: Their jobs are on record.
RUNS = frozenset({"runs"})

SCENARIOS = {
    "both-orders": Scenario(both_orders),
    "together": Scenario(together),
    "slot": Scenario(slot, needs=RUNS),
    "slot-waited-for": Scenario(slot_waited_for, needs=RUNS),
    "at-least": Scenario(at_least, needs=RUNS),
}
