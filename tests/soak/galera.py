"""What happens to the nodes of a Galera cluster, the rest of which goes on."""

from __future__ import annotations

import random
from functools import partial

from tests.clusters.galera import Galera, Node
from tests.servers import Server

from .cluster_faults import ClusterNemesis, Harm
from .crew import Crew, Place
from .nemesis import EVERYWHERE, Fault
from .plan import Plan
from .seen import wait_for_a_grant

FAULTS = {
    "node killed": Harm(Node.kill, Node.start),
    "node stopped": Harm(Node.stop, Node.start),
    "node frozen": Harm(Node.pause, Node.resume),
    "node cut off": Harm(Node.isolate, Node.rejoin),
}


class WithoutANode(ClusterNemesis):
    """One node after the other is away."""

    @property
    def cluster(self) -> Galera:
        assert isinstance(self._server, Galera)
        return self._server

    def kinds(self) -> dict[str, dict[str, Fault]]:
        return {
            EVERYWHERE: {name: partial(self._go_without, harm) for name, harm in FAULTS.items()}
        }


class OneWriter(WithoutANode):
    """All workers come to one node, through HAProxy. That one is away, so they move to the next."""


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

    def _go_without(self, harm: Harm, place: Place, chance: random.Random) -> None:
        nodes, away = self.cluster.nodes, self._home(place)
        behind = [each for each in self._crew.places if self._home(each) is away]
        ahead = [each for each in self._crew.places if each not in behind]
        harm.do(away)
        for each in behind[::2]:
            each.proxy.lead_to(nodes[nodes.index(away) - 1].url)
        wait_for_a_grant(self._plan.directory, [*ahead, *behind[::2]])
        harm.undo(away)
        self.cluster.settle()
        for each in behind[::2]:
            each.proxy.lead_to(away.url)
