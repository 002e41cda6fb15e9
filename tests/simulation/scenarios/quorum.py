"""A name at a majority of three databases, some of which are away, or forget."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from dblock import LockLost, OutcomeUnknown, Unavailable
from tests.simulation.loop import Violation
from tests.simulation.quorum import TTL, World
from tests.simulation.run import Clients, Scenario
from tests.simulation.thread import Thread

#: Seconds for which a client waits, once, for a member that is silent.
SILENCE = 3.0


def _once(world: World, me: Thread) -> None:
    had = world.hold(me)
    if not had and me.allowance.quiet:
        raise Violation(f"{me.name} waits in vain")


def turns(clients: Clients) -> None:
    """Two want it at the same time."""
    world = World(clients)
    for client in ("a", "b"):
        clients.thread(client, partial(_once, world))


def begins(clients: Clients) -> None:
    """The same, and the databases are new."""
    world = World(clients, begun=False)
    for client in ("a", "b"):
        clients.thread(client, partial(_once, world))


def tries(clients: Clients) -> None:
    """Three try it at the same time, and none waits."""
    world = World(clients)
    for client in ("a", "b", "c"):
        clients.thread(client, partial(world.hold, wait=0))


def refused(clients: Clients) -> None:
    """One member is silent, and one tries again and again what another has: that member is waited
    for once, and again only where another one fails, so that there is no majority without it."""
    world = World(clients)
    world.away(2)

    def trying(me: Thread) -> None:
        for number in range(5):
            waits = number == 0 or me.allowance.fails(me.client.name)
            with me.calling("trying", 2 * SILENCE if waits else 0):
                world.hold(me, wait=0)
            me.work(1)

    clients.thread("a", partial(world.hold, seconds=12))
    clients.thread("b", trying, after=SILENCE + 0.5)


def away(clients: Clients) -> None:
    """One member after the other is away, so that no two holds have the same majority."""
    world = World(clients)

    def holder(me: Thread) -> None:
        for number in (2, 2, 1, 0, 2):
            world.away(number)
            _once(world, me)

    clients.thread("a", holder)


def kept(clients: Clients) -> None:
    """One keeps it for some terms, by a slow clock, and another waits, by a fast one."""
    world = World(clients)
    clients.thread("a", partial(world.hold, seconds=8), rate=0.95)
    clients.thread("b", partial(_once, world), after=1, rate=1.05)


def cut_off(clients: Clients) -> None:
    """One that has it can reach one member only, and another waits."""
    world = World(clients)

    def cutting(me: Thread) -> None:
        for store in world.stores[1:]:
            store.reached_by = frozenset({"b"})

    clients.thread("a", partial(world.hold, seconds=8), may=(LockLost, Unavailable))
    clients.thread("b", partial(_once, world), after=0.5)
    clients.thread("c", cutting, after=1)


def handed_over(clients: Clients) -> None:
    """One member is away, and who waits keeps it for as long as one term lasts."""
    world = World(clients)
    world.away(2)
    clients.thread("a", partial(world.hold, seconds=5))
    clients.thread("b", partial(world.hold, seconds=5.3, renew=False), after=1)


def restored(clients: Clients) -> None:
    """A member is put back to a copy while it is held there, and another wants it."""
    world = World(clients)
    copy = world.stores[0].copied()
    world.away(2)

    def operator(me: Thread) -> None:
        world.away()
        world.restore(0, copy, me)

    clients.thread("a", partial(world.hold, seconds=5, renew=False), may=(LockLost,))
    clients.thread("b", partial(_once, world), after=SILENCE + 2.5)
    clients.thread("o", operator, after=SILENCE + 1)


def restored_alone(clients: Clients) -> None:
    """A member is put back to a copy, and the only other one that knows the newest fences is away
    when it may join again; then that one is back, and away once more when it has joined."""
    world = World(clients)
    copy = world.stores[0].copied()
    world.away(2)

    def holder(me: Thread) -> None:
        for _ in range(4):
            world.hold(me)

    def operator(me: Thread) -> None:
        world.away(1)
        world.restore(0, copy, me)
        me.work(12)
        world.away()
        for _ in range(3):
            me.work(1.5)  # it may join when another name is taken
            with world.quorum(me).lease("y", ttl=TTL, wait=30):
                pass
        world.away(1)

    clients.thread("a", holder, may=(LockLost, Unavailable))
    clients.thread("o", operator, after=SILENCE + 1)
    clients.thread("b", partial(world.hold, wait=0), after=13, may=(Unavailable,))
    clients.thread("c", partial(_once, world), after=30)


def elects(clients: Clients) -> None:
    """One leads, while each member is away for a value, and another after that; a third looks who
    leads."""
    world = World(clients)

    def leading(me: Thread) -> None:
        world.lead(me, [1, 2, 3])

    def hurting(me: Thread) -> None:
        for number in (0, 1, 2, 0):
            world.away(number)
            me.work(SILENCE)
        world.away()

    def looking(me: Thread) -> None:
        election = world.election(me)
        for _ in range(8):
            with suppress(Unavailable):
                world.referee.observe(election)
            me.work(1.3)

    clients.thread("a", leading, may=(LockLost, OutcomeUnknown, Unavailable))
    clients.thread("b", leading, after=1, may=(LockLost, OutcomeUnknown, Unavailable))
    clients.thread("c", looking, after=1.5)
    clients.thread("o", hurting, after=0.5)


MEMBERS = frozenset({"members"})

SCENARIOS = {
    "quorum": Scenario(turns, needs=MEMBERS),
    "quorum-begins": Scenario(begins, needs=MEMBERS),
    "quorum-tries": Scenario(tries, needs=MEMBERS),
    "quorum-refused": Scenario(refused, needs=MEMBERS),
    "quorum-away": Scenario(away, needs=MEMBERS),
    "quorum-kept": Scenario(kept, needs=MEMBERS),
    "quorum-cut-off": Scenario(cut_off, needs=MEMBERS),
    "quorum-handed-over": Scenario(handed_over, needs=MEMBERS),
    "quorum-restored": Scenario(restored, needs=MEMBERS),
    "quorum-restored-alone": Scenario(restored_alone, needs=MEMBERS),
    "quorum-elects": Scenario(elects, needs=MEMBERS),
}
