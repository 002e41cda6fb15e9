"""The queue for a name; and the user lock, where waiters wait in the server."""

from __future__ import annotations

from ..state import Granted, Queued
from .command import Command, Duration, Name


class Join(Command[Granted | Queued | None]):
    """Put the ticket into the queue. On a database without notifications, take the name instead if
    it is the ticket's turn.

    With ``yields`` the ticket does not join while another session waits in the server.
    """

    name: Name
    token: str
    owner: str
    ttl: Duration
    ticket: str
    yields: bool = False


class Take(Command[Granted | None]):
    """Take the name if it is the turn of the waiter with the token."""

    name: Name
    token: str
    owner: str
    ttl: Duration


class LookQueued(Command[Queued | None]):
    """Read a name's row as :class:`Look` does, and the ticket's position in the queue."""

    name: Name
    token: str
    ticket: str


class Leave(Command[int]):
    """Remove a waiter from the queue; notify the next waiter if the name is free."""

    name: Name
    token: str
    ticket: str


class WaitInServer(Command[bool]):
    """Wait for the name's user lock."""

    name: Name


class ReleaseAndUnlock(Command[int]):
    """Free the name as :class:`Release` does, and release its user lock."""

    name: Name
    token: str


class UnlockAll(Command[int]):
    """Release all user locks of the session."""
