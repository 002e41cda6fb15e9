"""What happens to the primary of a cluster, which Patroni then replaces or starts again."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tests.clusters.patroni import Node, Patroni
from tests.servers import execute, reaper
from tests.support import eventually

from .checker import exclusion
from .crew import Place
from .facts import Facts, History
from .history import YARDSTICK, Event, Tail, now, place_of
from .ledger import Ledger
from .nemesis import EVERYWHERE, Fault, Nemesis

# Commits that a server does not tell of before a standby has them.
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
PULSE = 0.1
GRANTS = 20  # that the new primary of two has to have told before one is enough


class Clustered(Nemesis):
    """One fault after the other; the cluster is whole again before the next."""

    between: ClassVar[dict[str, float]] = {EVERYWHERE: 0.5}

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
                "machine killed": self._kill,
                "machine frozen": self._freeze,
                "machine cut off": self._cut,
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

    def _kill(self, place: Place, chance: random.Random) -> None:
        old = self.cluster.primary
        old.kill()
        self._look_at_the_next(old)
        old.start()
        self.cluster.settle()

    def _freeze(self, place: Place, chance: random.Random) -> None:
        old = self.cluster.primary
        old.pause()
        self._look_at_the_next(old)
        old.resume()  # as a primary, until its Patroni finds out that it is none
        self.cluster.settle()

    def _cut(self, place: Place, chance: random.Random) -> None:
        old = self.cluster.primary
        old.cut()
        self._look_at_the_next(old)
        old.resume()
        self.cluster.settle()

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

    def _look_at_the_next(self, old: Node) -> None:
        """Wait until there is another primary, and it has granted something."""
        assert self.cluster.primary is not old
        seen, start = Seen(self._plan.directory), now()
        eventually(lambda: seen.granted(self._crew.places, start) > 0)


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


class Seen(Tail):
    """What is in the history so far."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._events: list[Event] = []

    def follow(self) -> None:
        time.sleep(PULSE)  # for whoever looks again and again
        super().follow()

    def add(self, events: Iterable[Event]) -> None:
        # The yardstick's are nine of ten, and in a long run all are looked through again and again.
        self._events += (event for event in events if event.kind != YARDSTICK)

    def granted(self, places: Sequence[Place], since: float) -> int:
        """How many grants those in these places were told of since then."""
        return self._told("acquire", "ok", places, since)

    def written(self, places: Sequence[Place], since: float) -> int:
        """How many commits they were told of."""
        return self._told("write", "ok", places, since)

    def _told(self, kind: str, step: str, places: Sequence[Place], since: float) -> int:
        self.follow()
        numbers = {place.number for place in places}
        told = [event for event in self._events if (event.kind, event.step) == (kind, step)]
        return sum(event.at > since and place_of(event.process) in numbers for event in told)

    def overlaps(self, names: tuple[str, ...]) -> bool:
        """Whether two were holders of a name at once."""
        self.follow()
        events = sorted(self._events, key=lambda event: event.at)
        _, found = exclusion(Facts(History(events, Ledger({}, []), names)))
        return bool(list(found))
