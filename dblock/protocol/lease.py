"""A lease's request, its hold, and its refusal, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .state import LockRow
from .term import Term

if TYPE_CHECKING:
    from ..lock_state import RowLockState


class Renounced(NamedTuple):
    """A token that was given up while a grant under it may still arrive.

    ``token`` is the hold's token; ``own`` is the request's own token, which differs if the request
    may share another reader's hold. ``lost``: the server may still execute a grant of it, and may
    have its row locked for that.
    """

    name: str
    token: str
    own: str
    lost: bool = False


@dataclass(slots=True)
class LeaseRequest:
    """An acquire's request. The token is made before the attempt; it alone proves ownership."""

    name: str
    token: str
    owner: str
    ttl: float
    #: Whether the first term may be shorter than the TTL, since it is renewed soon.
    short: bool = False
    #: This process has held the name before, so its row exists. The first try relies on that.
    known: bool = False
    #: It may share the name with other readers; the token says so too.
    shares: bool = False
    #: The token of the readers' hold that it may share, because a try of it asked to join.
    group: str | None = None
    #: The tickets that may be in the queue for it; the last one is the likeliest.
    tickets: list[str] = field(default_factory=list, compare=False)
    #: The given-up tokens that may still hold the name.
    unreturned: list[Renounced] = field(default_factory=list, compare=False, repr=False)

    def queued(self, ticket: str) -> None:
        """Record that a ticket may be in the queue for it from now on."""
        if ticket not in self.tickets:
            self.tickets.append(ticket)


class ReleaseRequest(NamedTuple):
    """A hold that is to be released.

    ``held`` is None if the caller knows only the token of the hold. With the own token of a
    ``reader``, only that reader leaves the shared hold. A ``guarded`` hold is freed but not passed
    on: the transaction with the guard may still be open, and the next holder has to wait for its
    end. ``in_doubt`` says that an earlier release of it may have been executed.
    """

    name: str
    token: str
    held: Held | None
    reader: str | None = None
    with_user_lock: bool = False
    guarded: bool = False
    in_doubt: bool = False


class Held(NamedTuple):
    """The lease was granted."""

    fence: int
    term: Term
    #: The server that granted it, if that is known.
    server: str | None = None
    #: Another holder or waiter was in the way.
    contended: bool = False
    #: The token of the hold, if another reader began it.
    group: str | None = None

    def elsewhere(self, server: str | None) -> bool:
        """Whether ``server``, which sent a reply, is not the server that granted the lease."""
        return None not in (self.server, server) and self.server != server


class Refused(NamedTuple):
    """The lease was not granted within the wait. ``state`` is the last known state of the name.

    The database grants nothing to any caller for ``pause`` seconds, after a crash or a failover.
    ``row_lock`` is the transaction that has locked the row, if the caller has waited and the
    database shows it.
    """

    state: LockRow | None
    pause: float = 0.0
    row_lock: RowLockState | None = None
