"""A semaphore: never more than its limit, whoever dies, gives up or changes it meanwhile."""

from __future__ import annotations

from functools import partial

from dblock import LimitMismatch
from tests.simulation.run import Clients, Scenario
from tests.simulation.thread import Thread

NAME = "api"


def _once(limit: int, seconds: float, me: Thread, wait: float = 30) -> None:
    """Have a slot once, having waited for it, and work so long."""
    with me.in_slot(me.semaphore(NAME, limit, ttl=6), wait) as slot:
        if slot is not None:
            me.work(seconds, slot)


def one(clients: Clients) -> None:
    """Three want the one slot at the same time."""
    for client in ("a", "b", "c"):
        clients.thread(client, partial(_once, 1, 0.05))


def two(clients: Clients) -> None:
    """Three want two slots; one gives up, and one dies with its slot."""

    def dying(me: Thread) -> None:
        with me.in_slot(me.semaphore(NAME, 2, ttl=3), 0):
            me.work(0.1)
            me.client.kill()
            me.work(1)

    clients.thread("a", dying)
    clients.thread("b", partial(_once, 2, 0.5), after=0.01)
    clients.thread("c", partial(_once, 2, 0.05, wait=0.2), after=0.02)
    clients.thread("d", partial(_once, 2, 0.05), after=0.03)


def again(clients: Clients) -> None:
    """Two want one slot again and again, and a third tries without waiting."""

    def repeating(wait: float, me: Thread) -> None:
        semaphore = me.semaphore(NAME, 1, ttl=6)
        for _ in range(2):
            with me.in_slot(semaphore, wait) as slot:
                me.work(0.02, *[slot] if slot else [])

    clients.thread("a", partial(repeating, 30))
    clients.thread("b", partial(repeating, 30), after=0.001)
    clients.thread("c", partial(repeating, 0), after=0.002)


def threads(clients: Clients) -> None:
    """Three threads of one client share a semaphore of two slots."""
    shared = None

    def sharing(me: Thread) -> None:
        nonlocal shared
        shared = shared or me.semaphore(NAME, 2, ttl=6)
        with me.in_slot(shared, 30) as slot:
            if slot is not None:
                me.work(0.05, slot)

    for number in range(3):
        clients.thread("a", sharing, after=0.001 * number)


def resized(clients: Clients) -> None:
    """The limit falls from 2 to 1 while both slots are held and one waits, and rises again; one
    has not heard of that."""

    def resizing(me: Thread) -> None:
        semaphore = me.semaphore(NAME, 2)
        for limit in (1, 2):
            semaphore.resize(limit)
            me.note(f"has resized to {limit}")
            me.work(2)

    def adapting(me: Thread) -> None:
        for limit in (2, 1, 2):
            try:
                _once(limit, 0.1, me)
            except LimitMismatch:
                me.note(f"is told that {limit} is wrong")
                me.work(0.1)

    clients.thread("a", partial(_once, 2, 0.3), may=(LimitMismatch,))
    clients.thread("b", partial(_once, 2, 0.3), may=(LimitMismatch,))
    clients.thread("c", adapting, after=0.02)
    clients.thread("d", resizing, after=0.1)
    clients.thread("e", partial(_once, 2, 0.1), after=0.5, may=(LimitMismatch,))


def before(clients: Clients) -> None:
    """Three want two slots again and again and do not wait, so each asks for the one that it had
    before; in the end there is one slot only."""

    def repeating(pause: float, me: Thread) -> None:
        semaphore = me.semaphore(NAME, 2, ttl=6)
        for _ in range(8):
            with me.in_slot(semaphore, 0) as slot:
                if slot is not None:
                    me.work(0.02, slot)
            me.work(pause)

    def resizing(me: Thread) -> None:
        me.semaphore(NAME, 2).resize(1)

    for number, client in enumerate(("a", "b", "c")):
        repeats = partial(repeating, 0.01 - 0.003 * number)
        clients.thread(client, repeats, after=0.003 * number, may=(LimitMismatch,))
    clients.thread("d", resizing, after=0.07)


SCENARIOS = {
    "one-slot": Scenario(one),
    "two-slots": Scenario(two),
    "slots-again": Scenario(again),
    "slots-of-one": Scenario(threads),
    "slots-resized": Scenario(resized),
    "slots-of-before": Scenario(before),
}
