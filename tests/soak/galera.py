"""What happens to the nodes of a Galera cluster, the rest of which goes on."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from tests.clusters.galera import Galera, Node
from tests.servers import Server
from tests.support import eventually

from .crew import Crew, Place
from .history import now
from .nemesis import EVERYWHERE, Fault, Nemesis
from .plan import Plan
from .seen import Seen

#: What is done to a node, and what undoes it.
FAULTS: dict[str, tuple[Callable[[Node], None], Callable[[Node], None]]] = {
    "node killed": (Node.kill, Node.start),
    "node stopped": (Node.stop, Node.start),
    "node frozen": (Node.pause, Node.resume),
    "node cut off": (Node.isolate, Node.rejoin),
}


class WithoutANode(Nemesis):
    """One node after the other is away; the cluster is whole again before the next."""

    between: ClassVar[dict[str, float]] = {EVERYWHERE: 0.5}

    @property
    def cluster(self) -> Galera:
        assert isinstance(self._server, Galera)
        return self._server

    def kinds(self) -> dict[str, dict[str, Fault]]:
        return {EVERYWHERE: {name: partial(self._go_without, *how) for name, how in FAULTS.items()}}

    @abstractmethod
    def _go_without(
        self,
        harm: Callable[[Node], None],
        undo: Callable[[Node], None],
        place: Place,
        chance: random.Random,
    ) -> None: ...

    def _wait_for_a_grant(self, places: Sequence[Place]) -> None:
        seen, start = Seen(self._plan.directory), now()
        eventually(lambda: seen.granted(places, start) > 0)


class OneWriter(WithoutANode):
    """All workers come to one node, through HAProxy. That one is away, so they move to the next."""

    def _go_without(
        self,
        harm: Callable[[Node], None],
        undo: Callable[[Node], None],
        place: Place,
        chance: random.Random,
    ) -> None:
        old = self.cluster.primary
        harm(old)
        eventually(lambda: self.cluster.primary is not old)
        self._wait_for_a_grant(self._crew.places)
        undo(old)
        self.cluster.settle()


class AllWriters(WithoutANode):
    """The workers are spread over all nodes. Some of those whose node is away move to the next."""

    def __init__(self, crew: Crew, server: Server, database: str, plan: Plan) -> None:
        super().__init__(crew, server, database, plan)
        self._spread()

    def _spread(self) -> None:
        for place in self._crew.places:
            place.proxy.lead_to(self._home(place).url)

    def _home(self, place: Place) -> Node:
        return self.cluster.nodes[place.number % len(self.cluster.nodes)]

    def _go_without(
        self,
        harm: Callable[[Node], None],
        undo: Callable[[Node], None],
        place: Place,
        chance: random.Random,
    ) -> None:
        nodes, away = self.cluster.nodes, self._home(place)
        behind = [each for each in self._crew.places if self._home(each) is away]
        ahead = [each for each in self._crew.places if each not in behind]
        harm(away)
        for each in behind[::2]:
            each.proxy.lead_to(nodes[nodes.index(away) - 1].url)
        self._wait_for_a_grant([*ahead, *behind[::2]])
        undo(away)
        self.cluster.settle()
        for each in behind[::2]:
            each.proxy.lead_to(away.url)
