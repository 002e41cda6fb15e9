"""A name that many want, again and again: who gets it when, and who stops waiting when."""

from __future__ import annotations

from functools import partial

from tenacity import stop_after_attempt, wait_fixed

from dblock import RetryPolicy
from dblock.protocol.faults import Fault
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread


def _holding(seconds: float, me: Thread) -> None:
    with me.holding(me.lease(NAME, ttl=6), 0) as had:
        if had:
            me.work(seconds)


def _again(rounds: int, me: Thread) -> None:
    """Want it again and again, in the order of arrival."""
    lease = me.lease(NAME, ttl=6, fair=True)
    for _ in range(rounds):
        with me.holding(lease, 30) as had:
            if had:
                me.work(0.03)


def beside_one(clients: Clients) -> None:
    """One wants it again and again, and another just once."""
    clients.thread("a", partial(_again, 12))
    clients.thread("b", once, after=0.005)


def beside_two(clients: Clients) -> None:
    """Two want it again and again, and another just once."""
    clients.thread("a", partial(_again, 6))
    clients.thread("b", once, after=0.005)
    clients.thread("c", partial(_again, 6), after=0.01)


def gateless(clients: Clients) -> None:
    """The same, and the server has no room for anybody who would wait in it."""
    clients.store.refused = {"wait_in_server": Fault.REFUSED}
    beside_two(clients)


def short_wait(clients: Clients) -> None:
    """One waits for a second, behind one that waits on, and another for as long as its policy
    says: in vain."""

    def impatient(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 1):
            pass

    def counting(me: Thread) -> None:
        policy = RetryPolicy(wait=wait_fixed(0.5), stop=stop_after_attempt(3))
        with (
            me.calling("making three tries", 1),
            me.holding(me.lease(NAME, ttl=6, retry=policy), 20),
        ):
            pass

    clients.thread("a", partial(_holding, 4))
    clients.thread("b", once, after=0.001)
    clients.thread("c", impatient, after=0.002)
    clients.thread("d", counting, after=0.003)


#: Who waits looks, as nobody calls it; or it waits in the server.
LOOKS, GATES = frozenset({"looks"}), frozenset({"gates"})

SCENARIOS = {
    "beside-one": Scenario(beside_one),
    "beside-two": Scenario(beside_two, needs=GATES),
    "beside-two-without-gates": Scenario(gateless, needs=GATES),
    "short-wait": Scenario(short_wait, needs=GATES),
}
