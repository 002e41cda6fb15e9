"""What the clients do: small programs, each about one promise or a few."""

from __future__ import annotations

from tests.simulation.run import Clients, Scenario, Thread

NAME = "x"


def hand_off(clients: Clients) -> None:
    """Two want the same name at the same time; each works a little."""
    for client in ("a", "b"):
        clients.thread(client, _once)


def _once(me: Thread) -> None:
    lease = me.locks.lease(NAME, ttl=6, wait=30)
    if me.acquire(lease, 30):
        me.work(0.3)
        me.release(lease)


def three(clients: Clients) -> None:
    """Three want the same name, one after the other."""
    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, _once, after=0.01 * number)


SCENARIOS: dict[str, Scenario] = {"hand-off": hand_off, "three": three}
