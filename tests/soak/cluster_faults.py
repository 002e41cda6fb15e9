"""What is the same of the faults of all clusters: a node is harmed, and the cluster made whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from tests.clusters.cluster import Cluster
from tests.servers import Server
from tests.support import eventually

from .crew import Place
from .nemesis import EVERYWHERE, Nemesis
from .seen import wait_for_a_grant


class Harm(NamedTuple):
    """What is done to a node, and what undoes it."""

    do: Callable[[Any], None]
    undo: Callable[[Any], None]


class ClusterNemesis(Nemesis):
    """One fault after the other; the cluster is whole again before the next."""

    between: ClassVar[dict[str, float]] = {EVERYWHERE: 0.5}

    @property
    def cluster(self) -> Cluster[Any]:
        assert isinstance(self._server, Cluster)
        return self._server

    def _go_without(self, harm: Harm, place: Place, chance: random.Random) -> None:
        """Harm the primary, and undo that when the next one has granted something."""
        old = self.cluster.primary
        harm.do(old)
        self._look_at_the_next(old)
        harm.undo(old)
        self.cluster.settle()

    def _look_at_the_next(self, old: Server) -> None:
        """Wait until there is another primary, and it has granted something."""
        eventually(lambda: self.cluster.primary is not old)
        wait_for_a_grant(self._plan.directory, self._crew.places)
