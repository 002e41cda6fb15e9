"""Several names at once, and jobs that several hosts start."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from dblock import DeadlockDetected, LockLost, NotAcquired
from tests.simulation.beliefs import MOMENT
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.thread import Thread


def _both(first: str, second: str, me: Thread, told: list[str]) -> None:
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
            told.append(me.name)
            if len(set(told)) > 1 and me.allowance.quiet:
                raise Violation("more than one of a cycle is told") from None
            me.work(0.2)


def both_orders(clients: Clients) -> None:
    """Two take the same two names, each in its own order: one is told."""
    told: list[str] = []
    clients.thread("a", lambda me: _both("x", "y", me, told))
    clients.thread("b", lambda me: _both("y", "x", me, told))


def row_in_both_orders(clients: Clients) -> None:
    """The same with a lease and a row lock: also who waits for the row looks."""

    def first_row(me: Thread) -> None:
        try:
            with me.holding(me.locks.row("y"), 5) as had:
                if had:
                    me.work(0.02)
                    with me.holding(me.lease("x", ttl=6), 20) as both:
                        if not both:
                            me.note("gives up")
        except DeadlockDetected:
            me.note("is told")

    def first_lease(me: Thread) -> None:
        try:
            with me.holding(me.lease("x", ttl=6), 5) as had:
                if had:
                    me.work(0.02)
                    with me.calling("waiting in a circle", 8.5), me.holding(me.locks.row("y"), 20):
                        pass
        except DeadlockDetected:
            me.note("is told")

    clients.thread("a", first_row)
    clients.thread("b", first_lease, after=0.001)


def behind_others(clients: Clients) -> None:
    """The same, and another thread, which has nothing, waits for as long as who has something."""

    def crossing(first: str, second: str, me: Thread) -> None:
        try:
            with me.holding(me.lease(first, ttl=6), 0) as had:
                if had:
                    me.work(0.1)
                    most = 5 if me.allowance.quiet else 20
                    with me.calling("waiting in a circle", most), me.holding(me.lease(second), 20):
                        pass
        except DeadlockDetected:
            me.note("is told")

    def waiting(me: Thread) -> None:
        with me.holding(me.lease("x", ttl=6), 30):
            pass

    clients.thread("b", partial(crossing, "x", "y"))
    clients.thread("a", waiting, after=0.01)
    clients.thread("a", partial(crossing, "y", "x"), after=0.05)


def of_before(clients: Clients) -> None:
    """What a waiter had when it said so last is not what it has: another has taken it since."""

    def losing(me: Thread) -> None:
        lease = me.lease("x", ttl=10.3, renew=False)
        if me.acquire(lease, 0):
            with me.holding(me.lease("y", ttl=6), 30):
                pass
            with suppress(LockLost):
                me.release(lease)

    def next_one(me: Thread) -> None:
        with me.holding(me.lease("x", ttl=6), 30) as had:
            if had:
                me.work(2)

    def late(me: Thread) -> None:
        with me.holding(me.lease("y", ttl=6), 0) as had:
            if had:
                me.work(10.2)
                with me.holding(me.lease("x", ttl=6), 30):
                    pass

    clients.thread("b", late, may=(DeadlockDetected,))
    clients.thread("a", losing, after=0.01, may=(LockLost, DeadlockDetected))
    clients.thread("c", next_one, after=5)


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


def together_slowly(clients: Clients) -> None:
    """One has to wait for the second of two names for longer than the first one lasts."""

    def holder(me: Thread) -> None:
        with me.holding(me.lease("y", ttl=6), 0) as had:
            if had:
                me.work(1.5)

    def taking(me: Thread) -> None:
        leases = [me.lease(name, ttl=1, renew=False) for name in ("x", "y")]
        lock = me.locks.all(*leases, wait=5)
        try:
            lock.__enter__()
        except NotAcquired:
            me.note("has not all")
            return
        if not all(lease.held for lease in leases):
            raise Violation(f"{me.name} is told that it has all, and has not")
        for lease in leases:
            me.beliefs.begin(me, lease)
        for lease in leases:
            me.beliefs.end(me, lease.name)
        lock.release()

    clients.thread("a", holder)
    clients.thread("b", taking, after=0.01, may=(LockLost,))


def names_alike(clients: Clients) -> None:
    """Names that are nearly the same have nothing to do with each other."""

    def holding(name: str, me: Thread) -> None:
        with me.holding(me.lease(name, ttl=6), 0) as had:
            if had:
                me.work(0.1)

    for number, name in enumerate(("n", "N", "n ")):
        clients.thread("abc"[number], partial(holding, name), after=0.01 * number)


def slot(clients: Clients) -> None:
    """Three hosts start a job, and one of them runs it."""

    def host(me: Thread) -> None:
        me.run_job("job", "today", 0.1, 3)

    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, host, after=0.04 * number)


def slot_waited_for(clients: Clients) -> None:
    """The same, but the others wait: one run that fails is another's to repeat. One comes late."""
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
            ran = me.run_job("job", "today", 0.1, 3, 10)
            status = me.ledger.committed.runs.get(("job", "today"))
            if not ran and status != 0 and me.allowance.quiet:
                raise Violation(f"{me.name} skips a job that nobody has run")

    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, host, after=0.04 * number)
    clients.thread("d", host, after=2)


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

        host = me.locks.cron("job", ttl=3, wait=10, at_least=1.0)(job)
        host()

    for number, client in enumerate(("a", "b")):
        clients.thread(client, starting, after=0.04 * number, may=(LockLost,))


def at_least_killed(clients: Clients) -> None:
    """The same, though the host dies in its run: the next one begins no earlier."""
    begun: list[float] = []

    def starting(me: Thread) -> None:
        def job() -> None:
            now = me.loop.now
            if begun and now - begun[0] < 4.0 - MOMENT - me.allowance.total:
                raise Violation(f"runs begin {now - begun[0]:.2f} s apart, not four at least")
            begun.append(now)
            me.ledger.left.add(host.lease.token)
            if me.name == "a":
                me.work(1.7)
                me.client.kill()

        host = me.locks.cron("job", ttl=3, wait=10, at_least=4.0)(job)
        host()

    for number, client in enumerate(("a", "b")):
        clients.thread(client, starting, after=0.04 * number, may=(LockLost,))


def pruned(clients: Clients) -> None:
    """What old runs have left is removed, but for the last run of a job."""

    def host(me: Thread) -> None:
        for slot in ("yesterday", "today"):
            me.run_job("job", slot, 0.1, 3)
        me.work(10)
        before = me.ledger.store.committed().runs
        me.locks.prune(5)
        kept = [slot for slot in ("yesterday", "today") if ("job", slot) in before][-1:]
        left = [slot for _, slot in me.ledger.store.committed().runs]
        if left != kept and not me.allowance.fails_over:  # which may bring some back
            raise Violation(f"of {list(before)} not only the last run is left")

    clients.thread("a", host)


#: A row lock keeps nobody from other names.
ROWS = frozenset({"rows"})
#: Where nobody is called its long waits are thousands of looks, and nothing more is to be seen.
CALLS = frozenset({"calls"})
#: Their jobs are on record.
RUNS = frozenset({"runs"})

SCENARIOS = {
    "both-orders": Scenario(both_orders),
    "row-in-both-orders": Scenario(row_in_both_orders, needs=ROWS),
    "behind-others": Scenario(behind_others),
    "of-before": Scenario(of_before, needs=CALLS),
    "together": Scenario(together),
    "together-slowly": Scenario(together_slowly),
    "names-alike": Scenario(names_alike),
    "slot": Scenario(slot, needs=RUNS),
    "slot-waited-for": Scenario(slot_waited_for, needs=RUNS),
    "pruned": Scenario(pruned, needs=RUNS),
    "at-least": Scenario(at_least, needs=RUNS),
    "at-least-killed": Scenario(at_least_killed, needs=RUNS),
}
