"""Calls that are made once, and gates: what the users do happens once, or in order, or not."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from dblock import InProgress, LockLost
from tests.simulation.calls import act, calling, make, write_behind
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.users import LENDING, SNAPSHOTS
from tests.simulation.scenarios.waiting import NAME
from tests.simulation.thread import Thread

KEY = "order 7"


def once(clients: Clients) -> None:
    """Three make the same call: one waits for ever, one for a while, one not at all."""
    for client, wait in (("a", None), ("b", 5.0), ("c", 0.0)):
        clients.thread(client, partial(make, key=KEY, wait=wait))


def once_snapshot(clients: Clients) -> None:
    """The same call, in transactions that see what there was when they began."""
    clients.store.snapshots = True
    once(clients)


def once_in_vain(clients: Clients) -> None:
    """A call fails, in a transaction that is committed or rolled back, and is made again."""

    def committing(me: Thread) -> None:
        with (
            me.transaction() as connection,
            suppress(InProgress),
            calling(me, connection, KEY),
            calling(me, connection, KEY),  # within itself
        ):
            pass
        make(me, KEY)

    def rolling_back(me: Thread) -> None:
        with (
            suppress(ZeroDivisionError),
            me.transaction() as connection,
            calling(me, connection, KEY) as call,
        ):
            act(me, connection, call)
            raise ZeroDivisionError
        make(me, KEY)

    clients.thread("a", committing)
    clients.thread("b", rolling_back)


def once_reused(clients: Clients) -> None:
    """Two make different calls with the same key: one of them is refused."""
    for client in ("a", "b"):
        clients.thread(client, partial(make, key=KEY, payload=client))


def once_expired(clients: Clients) -> None:
    """A key is new again after a minute, and is pruned while a call with it is made."""

    def twice(me: Thread) -> None:
        make(me, KEY, keep=60)
        me.work(60.1)
        make(me, KEY, keep=60)

    def pruning(me: Thread) -> None:
        with me.calling("pruning"):
            me.locks.prune(60)

    clients.thread("a", twice)
    clients.thread("b", twice, after=0.01)
    clients.thread("c", pruning, after=60.17)


def gate(clients: Clients) -> None:
    """One believes in its lease for too long, and the next holder is at the gate meanwhile."""

    def working(ttl: float, seconds: float, me: Thread) -> None:
        lease = me.lease(NAME, ttl=ttl, renew=False)
        with me.holding(lease, 30) as had:
            if had:
                me.work(seconds)
                write_behind(me, NAME, lease.fence)

    clients.thread("a", partial(working, 1, 1.1), may=(LockLost,))
    clients.thread("b", partial(working, 30, 0.0), after=1.05, may=(LockLost,))


def gate_snapshot(clients: Clients) -> None:
    """The same gate, in transactions that see what there was when they began."""
    clients.store.snapshots = True
    gate(clients)


SCENARIOS = {
    "once": Scenario(once, needs=LENDING),
    "once-snapshot": Scenario(once_snapshot, needs=SNAPSHOTS),
    "once-in-vain": Scenario(once_in_vain, needs=LENDING),
    "once-reused": Scenario(once_reused, needs=LENDING),
    "once-expired": Scenario(once_expired, needs=LENDING),
    "gate": Scenario(gate, needs=LENDING),
    "gate-snapshot": Scenario(gate_snapshot, needs=SNAPSHOTS),
}
