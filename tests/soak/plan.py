"""What a worker is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STOP = "stop"  # the file in the history's directory that ends the workers
CALM = "calm"  # the file there that keeps them from asking for anything while it is there


@dataclass(frozen=True)
class Plan:
    """What a worker is to do, and its place among the workers."""

    profile: str
    url: str
    directory: Path
    names: tuple[str, ...]
    ttl: float
    seed: str
    guarded: bool
    #: Whether each has a proxy between itself and the database.
    proxied: bool = False
    #: Whether the server knows when one who waits has died.
    sees_deaths: bool = True
    place: int = 1
    places: int = 1
    #: The databases of a quorum, in the profile of one; ``url`` is then that of the users' data.
    members: tuple[str, ...] = ()

    @property
    def stopped(self) -> bool:
        return (self.directory / STOP).exists()

    @property
    def calm(self) -> bool:
        return (self.directory / CALM).exists()

    @property
    def own_names(self) -> tuple[str, ...]:
        """Those that no other place has, where they are shared out."""
        return self.names[self.place - 1 :: self.places]
