"""The queue for a name; and the user lock, where waiters wait in the server."""

from __future__ import annotations

from ..state import Granted, Queued
from .command import Command, Duration, Name


class Join(Command[Granted | Queued | None]):
    """Put the ticket into the queue, in the position of an earlier ticket of the same token if
    there is one. The statement may wait for the row for a moment. On a database without
    notifications it takes the name if it is the ticket's turn.

    With ``yields`` the ticket does not join while another session waits in the server, since the
    queue does not show that session. The statement then marks the row, so that no other waiter
    begins to wait in the server.
    """

    name: Name
    token: str
    owner: str
    ttl: Duration
    ticket: str
    yields: bool = False


class Take(Command[Granted | None]):
    """Take the name if it is the turn of the waiter with the token; this may wait a moment for the
    row."""

    name: Name
    token: str
    owner: str
    ttl: Duration


class LookQueued(Command[Queued | None]):
    """Read a name's row as :class:`.Look` does, and the ticket's position in the queue."""

    name: Name
    token: str
    ticket: str


class Leave(Command[int]):
    """Remove a waiter from the queue; notify the next waiter if the name is free."""

    name: Name
    token: str
    ticket: str


class WaitInServer(Command[bool]):
    """Wait up to ``patience`` seconds for the name's user lock; reply whether another session had
    it.

    The session then has the user lock. The statement fails if the user lock or the row stayed busy,
    or if the row is marked because readers use the name.
    """

    name: Name
    patience: float


class ReleaseAndUnlock(Command[int]):
    """Free the name as :class:`.Release` does, and release its user lock. The session that has the
    user lock must run this."""

    name: Name
    token: str


class UnlockAll(Command[int]):
    """Release all user locks of the session."""
