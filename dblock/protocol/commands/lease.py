"""The lease: granted, renewed, moved to another token, released."""

from __future__ import annotations

from ..state import Granted, Renewal
from .command import Command, Duration, Name


class Grant(Command[Granted | None]):
    """Take the name if it is free; with ``known``, only a name with a row and an empty queue."""

    name: Name
    token: str
    owner: str
    ttl: Duration
    known: bool = False


class Renew(Command[dict[str, int | None]]):
    """Move the expiries of unexpired holds."""

    asked: tuple[Renewal, ...]


class Attach(Command[int | None]):
    """Move an unexpired hold to another token."""

    name: Name
    token: str
    new_token: str
    owner: str
    ttl: Duration


class Release(Command[int]):
    """Free the name if the token holds it; where releases pass names on, only if its queue is
    empty."""

    name: Name
    token: str


class PassOn(Command[int]):
    """If the token holds the name, grant it to the first waiter, or free it and notify a waiter."""

    name: Name
    token: str
    #: Whether the name may be granted to a waiter at once; otherwise it is freed.
    passes: bool
