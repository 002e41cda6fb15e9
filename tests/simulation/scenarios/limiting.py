"""Rate limits: no more calls than a limit allows, each caller in its turn, and no place is lost."""

from __future__ import annotations

from functools import partial

from tests.simulation.rates import call
from tests.simulation.run import Clients, Scenario
from tests.simulation.thread import Thread

NAME = "api"


def at_once(clients: Clients) -> None:
    """Three call again and again without waiting; there are two places, and then one after the
    other. After a pause there are two again, and not more."""

    def calling(pause: float, me: Thread) -> None:
        rate = me.locks.rate(NAME, 2, per=0.4)
        for _ in range(4):
            call(me, rate)
            me.work(pause)
        me.work(1.5)
        call(me, rate)

    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, partial(calling, 0.11 + 0.03 * number), after=0.001 * number)


def waiting(clients: Clients) -> None:
    """Three wait for their places, which are evenly spaced; a fourth does not wait for long."""

    def calling(wait: float, times: int, me: Thread) -> None:
        rate = me.locks.rate(NAME, 10, per=1, burst=1)
        for _ in range(times):
            call(me, rate, wait)

    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, partial(calling, 10, 3), after=0.001 * number)
    clients.thread("d", partial(calling, 0.15, 4), after=0.05)


def costly(clients: Clients) -> None:
    """One call takes three of four places, the others one."""

    def calling(cost: int, wait: float, me: Thread) -> None:
        rate = me.locks.rate(NAME, 4, per=1, cost=cost)
        for _ in range(3):
            call(me, rate, wait)
            me.work(0.05)

    clients.thread("a", partial(calling, 3, 5))
    clients.thread("b", partial(calling, 3, 0), after=0.002)


def retired(clients: Clients) -> None:
    """The rows of unused names are deleted while a place is not back, and when it is."""

    def calling(me: Thread) -> None:
        rate = me.locks.rate(NAME, 1, per=100)
        call(me, rate)
        for _ in range(2):
            me.work(70)
            me.locks.prune_names(60)
            call(me, rate)

    clients.thread("a", calling)


SCENARIOS = {
    "rate-limit": Scenario(at_once),
    "rate-waiting": Scenario(waiting),
    "rate-costs": Scenario(costly),
    "rate-retired": Scenario(retired, lasts=400.0),
}
