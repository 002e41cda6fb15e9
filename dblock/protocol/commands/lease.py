"""The lease: granted, renewed, moved to another token, released."""

from __future__ import annotations

from ..state import Granted, Renewal
from .command import Command, Duration, Name


class Grant(Command[Granted | None]):
    """Take the name if it is free, and raise its fence. The statement does not wait, and writes
    nothing if the name is not free.

    The requester is not in the queue. A free name is reserved for the waiters in its queue first,
    for the :attr:`~.Timing.grace` of each.

    The statement raises the fence while it has the row locked, so fences grow in the order of the
    grants.

    With ``known`` it is faster where it can be, and may refuse a name without a row or with a
    queue.
    """

    name: Name
    token: str
    owner: str
    ttl: Duration
    known: bool = False


class Renew(Command[dict[str, int | None]]):
    """Move the expiries of unexpired holds, without waiting; reply with the token of each renewed
    hold and its fence. The fence may be None if there are several holds.

    If one row is locked, the statement either renews the others or fails.
    """

    asked: tuple[Renewal, ...]


class Attach(Command[int | None]):
    """Move an unexpired hold to another token, without waiting; reply with its fence.

    None when the token does not hold the name, or while a transaction is guarded with it:
    transactions that the previous holder has guarded must end before the next holder goes on.
    """

    name: Name
    token: str
    new_token: str
    owner: str
    ttl: Duration


class Release(Command[int]):
    """Free the name if the token holds it; one row when it did.

    On a database whose releases pass names on, this frees the name only if its queue is empty.
    """

    name: Name
    token: str


class PassOn(Command[int]):
    """If the token holds the name, grant the name to the first waiter and notify that waiter; one
    row when the token held it. If that is impossible, or ``passes`` is false, free the name and
    notify the first waiter that can be notified.

    A database that cannot notify passes no name on: a :class:`Release` is enough there.
    """

    name: Name
    token: str
    passes: bool = True
