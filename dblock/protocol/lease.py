"""A lease as it is asked for, held, or refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .state import LockRow
from .term import Term

if TYPE_CHECKING:
    from ..lock_state import RowLockState


class Renounced(NamedTuple):
    """What must not be believed in: the token of a hold, and the own one of who may share it."""

    name: str
    token: str
    own: str


@dataclass(slots=True)
class LeaseRequest:
    """What an acquire asks for. The token is made before the attempt; it alone proves ownership."""

    name: str
    token: str
    owner: str
    ttl: float
    #: Whether it may begin with a term that is shorter than that, since it is renewed soon.
    short: bool = False
    #: This process has had the name before, so there is a row of it. The first try is for such.
    known: bool = False
    #: It may share the name with others who do: the token says so too.
    shares: bool = False
    #: The token of the readers' hold that it may share, by a try of its own.
    group: str | None = None
    #: What it may stand in the queue with, the last one first of all.
    tickets: list[str] = field(default_factory=list, compare=False)
    #: What it has renounced, and may have the name with all the same.
    unreturned: list[Renounced] = field(default_factory=list, compare=False, repr=False)

    def queued(self, ticket: str) -> None:
        """Take down that it may stand in the queue with a ticket from now on."""
        if ticket not in self.tickets:
            self.tickets.append(ticket)


class Held(NamedTuple):
    """The lease was granted."""

    fence: int
    term: Term
    #: The server that granted it, where it is known.
    server: str | None = None
    #: Somebody else was in the way.
    contended: bool = False
    #: The token of the hold, where that is another reader's who shares it.
    group: str | None = None

    def elsewhere(self, server: str | None) -> bool:
        """Whether a reply of ``server`` is that of another server than granted it."""
        return None not in (self.server, server) and self.server != server


class Refused(NamedTuple):
    """It was not, within the wait. ``state`` is what was last seen of the name.

    ``pause`` is for how many seconds nothing at all is granted, after a crash or a failover.
    ``row_lock`` is the transaction that has locked the row, if the caller has waited and the
    database shows it.
    """

    state: LockRow | None
    pause: float = 0.0
    row_lock: RowLockState | None = None
