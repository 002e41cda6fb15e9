"""Some want what others have: who gets it, in which order, and who is told that it does not."""

from __future__ import annotations

from functools import partial

from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.thread import Thread

NAME = "x"


def once(me: Thread) -> None:
    lease = me.lease(NAME, ttl=6)
    with me.holding(lease, 30) as had:
        if had:
            me.work(0.05, lease)


def hand_off(clients: Clients) -> None:
    """Two want the same name at the same time; each works a little."""
    for client in ("a", "b"):
        clients.thread(client, once)


def three(clients: Clients) -> None:
    """Three want the same name, one after the other."""
    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, once, after=0.01 * number)


def give_up(clients: Clients) -> None:
    """One gives up waiting when the holder is about to release, and another waits on."""

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0):
            me.work(0.1)

    def impatient(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0.1):
            pass

    clients.thread("a", holder)
    clients.thread("b", impatient, after=0.001)
    clients.thread("c", once, after=0.02)


def give_up_late(clients: Clients) -> None:
    """Some wait for a few seconds, in vain: that long, and no longer."""

    def impatient(seconds: float, me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), seconds):
            pass

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0):
            me.work(4)

    clients.thread("a", holder)
    for client, seconds in (("b", 1.0), ("c", 1.3), ("d", 3.0)):
        clients.thread(client, partial(impatient, seconds), after=0.001)


def tries(clients: Clients) -> None:
    """One tries without waiting, beside others who wait: nobody is passed by for ever."""

    def trier(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        for _ in range(3):
            with me.holding(lease, 0):
                me.work(0.03)

    clients.thread("a", once)
    clients.thread("b", once, after=0.001)
    clients.thread("c", trier, after=0.002)


def fair(clients: Clients) -> None:
    """Three wait in the strict order of their arrival, one of them again and again."""

    def fairly(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6, fair=True)
        for _ in range(2 if me.name == "a" else 1):
            with me.holding(lease, 30) as had:
                if had:
                    me.work(0.02)

    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, fairly, after=0.01 * number)


def threads(clients: Clients) -> None:
    """Three threads of one client want the same name, and so does another client."""

    def shortly(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 30) as had:
            if had:
                me.work(0.02)

    for number in range(3):
        clients.thread("a", shortly, after=0.005 * number)
    clients.thread("b", shortly, after=0.007)


def threads_long(clients: Clients) -> None:
    """Three threads of one client wait for so long that others are told of it, and one is."""

    def long(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0) as had:
            if had:
                me.work(0.8)

    clients.thread("b", long)
    for number in range(3):
        clients.thread("a", once, after=0.001 + 0.005 * number)


def killed_waiters(clients: Clients) -> None:
    """Who is killed while it waits is seen to wait no more, once another has waited."""

    def long(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=20), 0) as had:
            if had:
                me.work(28)

    def killed(me: Thread) -> None:
        me.work(0.5)
        me.client.kill()

    def later(me: Thread) -> None:
        once(me)
        senders = [me.ledger.waiters.get(id) for id, _ in me.ledger.store.waiters()]
        if me.allowance.quiet and any(one and not one.client.alive for one in senders):
            raise Violation("the dead are seen to wait")

    clients.thread("a", long)
    clients.thread("b", once, after=0.001)
    clients.thread("b", killed, after=0.002)
    clients.thread("c", later, after=27)


def shared(clients: Clients) -> None:
    """Two threads share one lease, and another client wants the name."""
    lease = None

    def sharing(me: Thread) -> None:
        nonlocal lease
        lease = lease or me.lease(NAME, ttl=6)
        with me.holding(lease, 30) as had:
            if had:
                me.work(0.05, lease)

    clients.thread("a", sharing)
    clients.thread("a", sharing, after=0.001)
    clients.thread("b", once, after=0.002)


def reader(clients: Clients) -> None:
    """Somebody looks who holds it and who waits, meanwhile."""

    def reading(me: Thread) -> None:
        for _ in range(2):
            before, forgot = me.ledger.rows.get(NAME), me.ledger.store.forgot
            state = me.locks.show(NAME)
            after = me.ledger.rows.get(NAME)
            if me.ledger.store.forgot != forgot:
                before = me.ledger.store.left.get(NAME)  # who looks is shown what is left
            least, most = (row.fence if row else 0 for row in (before, after))
            if not least <= state.fence <= most:
                raise Violation(f"a fence of {state.fence} is shown: it is {least} to {most}")
            if any(one.name != NAME for one in me.locks.list()):
                raise Violation("a name is listed that nobody knows")
            me.work(0.03)

    clients.thread("a", once)
    clients.thread("b", once, after=0.001)
    clients.thread("c", reading, after=0.01)


SCENARIOS = {
    "hand-off": Scenario(hand_off),
    "three": Scenario(three),
    "give-up": Scenario(give_up),
    "give-up-late": Scenario(give_up_late),
    "tries-beside-waiters": Scenario(tries),
    "fair-trio": Scenario(fair),
    "threads-of-one": Scenario(threads),
    "threads-waiting-long": Scenario(threads_long),
    "killed-waiters": Scenario(killed_waiters),
    "shared-lease": Scenario(shared),
    "reader": Scenario(reader),
}
