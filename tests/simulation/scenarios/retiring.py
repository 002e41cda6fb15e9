"""Names that nobody has used for long are deleted, and come back at that moment."""

from __future__ import annotations

from dblock import Conflict
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.users import LENDING
from tests.simulation.scenarios.waiting import NAME
from tests.simulation.thread import Thread

#: The least that a name has to be unused, in seconds; and more than that.
IDLE, LATER = 60.0, 61.0


def _use(me: Thread, name: str, seconds: float = 0.0) -> None:
    with me.holding(me.lease(name, ttl=6), 20) as had:
        if had:
            me.work(seconds)


def _lock(me: Thread, name: str, seconds: float = 0.0) -> None:
    with me.holding(me.locks.row(name), 20) as had:
        if had:
            me.work(seconds)


def retired(clients: Clients) -> None:
    """One takes a name again and again, another locks its row, and it is retired before that."""

    def taking(me: Thread) -> None:
        _use(me, NAME)
        me.work(LATER + 0.02)
        for _ in range(2):
            _use(me, NAME, 0.03)
            me.work(0.01)

    def locking(me: Thread) -> None:
        me.work(LATER + 0.05)
        _lock(me, NAME, 0.01)

    def pruning(me: Thread) -> None:
        me.work(LATER)
        for _ in range(4):
            me.locks.prune_names(IDLE)
            me.work(0.01)

    clients.thread("a", taking)
    clients.thread("b", locking)
    clients.thread("c", pruning)


def retired_later(clients: Clients) -> None:
    """A name with a smaller fence is retired after one with a larger, which then comes back."""

    def larger(me: Thread) -> None:
        for _ in range(3):
            _use(me, NAME)
        me.work(1.5 * LATER + 0.1)
        _lock(me, NAME)
        _use(me, NAME)

    def smaller(me: Thread) -> None:
        me.work(LATER / 2)
        _use(me, "y")
        me.work(LATER + 0.1)
        _use(me, "y")

    def pruning(me: Thread) -> None:
        for seconds in (LATER, LATER / 2 + 0.05):
            me.work(seconds)
            me.locks.prune_names(IDLE)

    clients.thread("a", larger)
    clients.thread("b", smaller)
    clients.thread("c", pruning)


def retired_beside_waiters(clients: Clients) -> None:
    """One has the row of a name locked, for which others wait: in its queue, and for the row."""
    # Where a row lock keeps nobody from other names, pruning waits for nobody.
    seconds = 0.05 if "rows" in clients.store.has else 5.0

    def before(me: Thread) -> None:
        _use(me, NAME)
        me.work(LATER)
        _lock(me, NAME, 0.8)

    def queueing(me: Thread) -> None:
        me.work(LATER + 0.053)
        _use(me, NAME, 0.01)

    def locking(me: Thread) -> None:
        me.work(LATER + 0.117)
        _lock(me, NAME, 0.01)

    def pruning(me: Thread) -> None:
        me.work(LATER + 0.161)
        for _ in range(3):
            with me.calling("pruning", seconds):
                me.locks.prune_names(IDLE)
            me.work(0.1)

    clients.thread("a", before)
    clients.thread("b", queueing)
    clients.thread("c", locking)
    clients.thread("d", pruning)


def retired_beside_users(clients: Clients) -> None:
    """Two lock its row in transactions of their own, which see what there was when they began."""
    clients.store.snapshots = "snapshots" in clients.store.has

    def locking(me: Thread) -> None:
        me.work(LATER)
        try:
            with me.transaction() as connection:
                if me.acquire(me.locks.row(NAME, on=connection), 5):
                    me.work(0.03)
                elif me.allowance.quiet:
                    raise Violation(f"{me.name} waits in vain for the row of {NAME!r}")
        except Conflict:
            me.note("Conflict")

    def pruning(me: Thread) -> None:
        _use(me, NAME)
        me.work(LATER)
        for _ in range(4):
            me.locks.prune_names(IDLE)
            me.work(0.02)

    clients.thread("a", locking)
    clients.thread("b", locking, after=0.002)
    clients.thread("c", pruning)


SCENARIOS = {
    "retired": Scenario(retired),
    "retired-later": Scenario(retired_later),
    "retired-beside-waiters": Scenario(retired_beside_waiters),
    "retired-beside-users": Scenario(retired_beside_users, needs=LENDING),
}
