"""Readers that share a name: never a writer beside them, whoever dies, comes or goes meanwhile."""

from __future__ import annotations

from functools import partial

from dblock import Conflict
from tests.simulation.run import Clients, Scenario
from tests.simulation.thread import Thread

NAME = "report"
#: Where one transaction writes at a time, another reader may be at it for long.
BUSY = (Conflict,)


def _read(
    seconds: float, me: Thread, wait: float = 30, ttl: float = 6, writes: bool = True
) -> None:
    reader = me.shared(NAME, ttl=ttl)
    with me.holding(reader, wait) as had:
        if had:
            me.work(seconds, reader)
            if writes:
                me.write(reader)


def _write(seconds: float, me: Thread, wait: float = 30, writes: bool = True) -> None:
    writer = me.lease(NAME, ttl=6)
    with me.holding(writer, wait) as had:
        if had:
            me.work(seconds, writer)
            if writes:
                me.write(writer)


def beside(clients: Clients) -> None:
    """Two read, the second with a longer TTL; the third comes when the first has gone, and a writer
    waits for all of them."""
    clients.thread("a", partial(_read, 0.1), may=BUSY)
    clients.thread("b", partial(_read, 0.3, ttl=9), after=0.02, may=BUSY)
    clients.thread("c", partial(_read, 0.3), after=0.15, may=BUSY)
    clients.thread("d", partial(_write, 0.05), after=0.2)


def waited_for(clients: Clients) -> None:
    """Two readers and a writer wait for a writer, and a reader comes after them."""
    clients.thread("a", partial(_write, 0.1))
    clients.thread("b", partial(_read, 0.1), after=0.02, may=BUSY)
    clients.thread("c", partial(_read, 0.1), after=0.04, may=BUSY)
    clients.thread("d", partial(_write, 0.02), after=0.06)
    clients.thread("e", partial(_read, 0.02), after=0.16, may=BUSY)


def dying(clients: Clients) -> None:
    """The first reader dies; the second goes on, and a writer waits for the longest TTL."""

    def killed(me: Thread) -> None:
        with me.holding(me.shared(NAME, ttl=3), 0):
            me.work(0.2)
            me.client.kill()
            me.work(1)

    clients.thread("a", killed)
    clients.thread("b", partial(_read, 0.4, ttl=3), after=0.05, may=BUSY)
    clients.thread("c", partial(_write, 0.05), after=0.3)


def crossing(clients: Clients) -> None:
    """Readers come just when the last one goes, of one client and of another; one does not wait."""
    clients.thread("a", partial(_read, 0.05, writes=False))
    clients.thread("a", partial(_read, 0.05, writes=False), after=0.05)
    clients.thread("b", partial(_read, 0.05, writes=False, wait=0), after=0.051)
    clients.thread("c", partial(_write, 0.05, writes=False, wait=0.1), after=0.052)


def for_long(clients: Clients) -> None:
    """Readers are renewed side by side, those with a short TTL more often; a writer waits."""
    clients.thread("a", partial(_read, 2.5, ttl=9, writes=False))
    clients.thread("b", partial(_read, 2.5, ttl=3, writes=False), after=0.02)
    clients.thread("c", partial(_write, 0.05, writes=False), after=0.5)


def just_in_time(clients: Clients) -> None:
    """The only reader is dead, and its time nearly over, when another comes."""

    def killed(me: Thread) -> None:
        with me.holding(me.shared(NAME, ttl=0.5), 0):
            me.client.kill()
            me.work(1)

    clients.thread("a", killed)
    clients.thread("b", partial(_read, 0.2, writes=False), after=0.45)


SCENARIOS = {
    "readers": Scenario(beside),
    "readers-wait": Scenario(waited_for),
    "reader-dies": Scenario(dying),
    "readers-cross": Scenario(crossing),
    "readers-for-long": Scenario(for_long),
    "reader-just-in-time": Scenario(just_in_time),
}
