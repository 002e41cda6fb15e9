"""What happens to the primary of a cluster, which Patroni then replaces or starts again."""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator, Sequence
from functools import partial

from tests.clusters.patroni import Node, Patroni
from tests.servers import Server, execute, reaper
from tests.support import eventually

from .cluster_faults import ClusterNemesis, Harm
from .crew import Place
from .history import now
from .nemesis import EVERYWHERE, Fault
from .seen import Seen

# Commits that a server does not tell of before a standby has them.
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
GRANTS = 20  # that the new primary of two has to have told before one is enough


class Clustered(ClusterNemesis):
    """What happens to any Patroni cluster."""

    @property
    def cluster(self) -> Patroni:
        assert isinstance(self._server, Patroni)
        return self._server

    @property
    def closed(self) -> float:
        return self._plan.ttl

    def kinds(self) -> dict[str, dict[str, Fault]]:
        return {
            EVERYWHERE: {
                "database killed": self._kill_database,
                "switchover": self._switch_over,
                "two switchovers": self._switch_over_twice,
                "machine killed": partial(self._go_without, Harm(Node.kill, Node.start)),
                # It is back as a primary, until its Patroni finds out that it is none.
                "machine frozen": partial(self._go_without, Harm(Node.pause, Node.resume)),
                "machine cut off": partial(self._go_without, Harm(Node.cut, Node.resume)),
                "machine cut off with clients": self._cut_with_clients,
            }
        }

    def _kill_database(self, place: Place, chance: random.Random) -> None:
        self.cluster.kill_database()
        self.cluster.settle()

    def _switch_over(self, place: Place, chance: random.Random) -> None:
        self.cluster.switch_over()
        self.cluster.settle()

    def _switch_over_twice(self, place: Place, chance: random.Random) -> None:
        """The second one as soon as it can be: in the pause after the first."""
        self.cluster.switch_over()
        self._switch_over(place, chance)

    def _cut_with_clients(self, place: Place, chance: random.Random) -> None:
        """No standby hears of what the old primary still does for the clients on its side."""
        old = self.cluster.primary
        with self._half_on_the_side_of(old):
            old.cut()
            self._look_at_the_next(old)

    @contextlib.contextmanager
    def _half_on_the_side_of(self, old: Node) -> Iterator[Sequence[Place]]:
        """Half of the workers go on with the old primary, whatever they should know of another.

        Yields the places of the others.
        """
        behind, ahead = self._crew.places[::2], self._crew.places[1::2]
        for each in behind:
            each.proxy.lead_to(old.url)
        yield ahead
        old.resume()
        self.cluster.settle()
        for each in behind:
            each.proxy.lead_to(self.cluster.url)

    def _look_at_the_next(self, old: Server) -> None:
        assert self.cluster.primary is not old  # which answers nobody any more
        super()._look_at_the_next(old)


class Lagging(Clustered):
    """A standby becomes the primary that has not received the last commits."""

    def kinds(self) -> dict[str, dict[str, Fault]]:
        more: dict[str, Fault] = {"machine killed, standby behind": self._kill_unheard}
        return {EVERYWHERE: super().kinds()[EVERYWHERE] | more}

    def _kill_unheard(self, place: Place, chance: random.Random) -> None:
        old = self.cluster.primary
        (standby,) = (node for node in self.cluster.nodes if node is not old)
        ((receiver,),) = execute(standby.url, "SELECT pid FROM pg_stat_wal_receiver")
        reaper.send(receiver, signal.SIGSTOP)
        seen, start, places = Seen(self._plan.directory), now(), self._crew.places
        eventually(lambda: seen.granted(places, start) > 0 < seen.written(places, start))
        old.kill()
        reaper.send(receiver, signal.SIGKILL)  # with what has come and it has not read
        self._look_at_the_next(old)
        old.start()
        self.cluster.settle()


class Hung(Clustered):
    """Patroni alone hangs, and no watchdog ends its PostgreSQL: two nodes are the primary."""

    def kinds(self) -> dict[str, dict[str, Fault]]:
        return {EVERYWHERE: {"Patroni frozen": self._freeze_patroni}}

    def _freeze_patroni(self, place: Place, chance: random.Random) -> None:
        cluster = self.cluster
        old = cluster.primary
        with self._half_on_the_side_of(old) as ahead:
            old.freeze_patroni()
            assert cluster.primary is not old
            seen, start = Seen(self._plan.directory), now()
            if cluster.mode == "async":
                eventually(lambda: seen.overlaps(self._plan.names))
            else:
                eventually(lambda: execute(old.url, WAITING) != [(0,)])
                eventually(lambda: seen.granted(ahead, start) >= GRANTS)


class Fenced(Hung):
    """All of that, where a synchronous standby keeps the old primary from granting."""

    def kinds(self) -> dict[str, dict[str, Fault]]:
        return {EVERYWHERE: Clustered.kinds(self)[EVERYWHERE] | super().kinds()[EVERYWHERE]}
