"""What clusters have in common: nodes, one of which is the primary, and what leads to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Generic, TypeVar

from tests.servers.base import Server
from tests.support import eventually

NodeT = TypeVar("NodeT", bound=Server)


class Cluster(Server, Generic[NodeT]):
    """Several servers that clients see as one. Its primary does what is asked of it."""

    nodes: Sequence[NodeT]

    @property
    @abstractmethod
    def _parts(self) -> Sequence[Server]:
        """The nodes and their helpers, in the order in which they are started."""

    @abstractmethod
    def _primaries(self) -> Iterable[NodeT]:
        """The nodes that are the primary just now, the one to use first."""

    @property
    def primary(self) -> NodeT:
        """The node that is written to, as soon as there is one."""
        found: list[NodeT] = []

        def look() -> bool:
            # No further than to the first: the others may be frozen.
            found.extend(islice(self._primaries(), 1))
            return bool(found)

        eventually(look)
        return found[0]

    def create_database(self, name: str, template: str | None = None) -> None:
        self.primary.create_database(name, template)

    def drop_database(self, name: str) -> None:
        self.primary.drop_database(name)

    def start(self) -> None:
        for server in self._parts:
            server.start()
        self.settle()

    def kill(self) -> None:
        """Turn the primary's machine off."""
        self.primary.kill()

    def pause(self) -> None:
        """Freeze the primary's machine."""
        self.primary.pause()

    def resume(self) -> None:
        """Undo `pause`, and whatever else keeps a node from the others for a while."""
        for node in self.nodes:
            node.resume()

    def stop(self) -> None:
        for server in reversed(self._parts):
            server.stop()

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for server in self._parts:
                all_of_them.callback(server.close)
