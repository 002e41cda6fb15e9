"""Some campaign, one leads and proclaims something, and others observe that."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from dblock import LockLost
from dblock.errors import DBLockError
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME
from tests.simulation.thread import Thread

#: Seconds of a term; longer than the deadline of who takes over.
TTL = 6.0
LAST = "over"


def _lead(me: Thread, *values: str) -> None:
    """Campaign, and proclaim values one after the other."""
    term = me.term(NAME, ttl=TTL)
    with me.holding(term, 30) as had:
        for value in values if had else ():
            me.proclaim(term, value)
            me.work(0.05, term)


def _observed(clients: Clients, *starts: float) -> None:
    """Some observe, until their own client leads and proclaims that it is over."""
    seen: list[bool] = []

    def observing(after: float, me: Thread) -> None:
        try:
            me.work(after)
            me.observe(NAME, LAST)
        finally:
            seen.append(True)

    def ending(me: Thread) -> None:
        me.work(1.5)
        while len(seen) < len(starts):
            with suppress(DBLockError, KeyboardInterrupt):
                term = me.term(NAME, ttl=TTL)
                with me.holding(term, 30) as had:
                    if had:
                        me.proclaim(term, LAST)
                    while len(seen) < len(starts):
                        me.work(0.1, *[term] if had else [])

    for after in starts:
        clients.thread("c", partial(observing, after))
    clients.thread("c", ending)


def elections(clients: Clients) -> None:
    """One leads and resigns, another takes over, and two observe that."""

    def later(me: Thread) -> None:
        me.work(0.02)
        _lead(me, "c", "d")

    clients.thread("a", lambda me: _lead(me, "a", "b"))
    clients.thread("b", later)
    _observed(clients, 0.0, 0.08)


def deposed(clients: Clients) -> None:
    """A leader is released by force, and goes on proclaiming when another leads; a third is
    stopped for longer than its term, and goes on after that."""

    def forced(me: Thread) -> None:
        term = me.term(NAME, ttl=TTL)
        with me.holding(term, 0) as had:
            if had:
                me.proclaim(term, "f")
                me.work(0.1)
                me.proclaim(term, "g")

    def forcing(me: Thread) -> None:
        me.work(0.05)
        me.force(NAME)

    def stopped(me: Thread) -> None:
        term = me.term(NAME, ttl=0.5)
        with me.holding(term, 30) as had:
            if had:
                me.proclaim(term, "a")
                me.client.pause(1.0)
                me.work(0.01)
                for value in ("b", "c"):
                    me.proclaim(term, value)

    def next_one(me: Thread) -> None:
        me.work(0.1)
        _lead(me, "d", "e")

    clients.thread("a", forced, may=(LockLost,))
    clients.thread("b", stopped, after=0.01, may=(LockLost,))
    clients.thread("d", forcing)
    clients.thread("e", next_one)
    _observed(clients, 0.0, 0.9)


SCENARIOS = {"elections": Scenario(elections), "deposed": Scenario(deposed)}
