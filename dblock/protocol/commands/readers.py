"""Readers that share a hold."""

from __future__ import annotations

from .command import Command, Duration, Name


class JoinReaders(Command[int]):
    """Share the unexpired hold of a group of readers, and extend it to a TTL from now at least.

    Refused if other waiters are in the queue before this reader, unless it goes ``past`` them.
    """

    name: Name
    group: str
    token: str
    ttl: Duration
    ticket: str
    past: bool


class LeaveReaders(Command[int]):
    """Stop sharing a hold; the last reader frees the name, and notifies the next waiter."""

    name: Name
    group: str
    token: str


class CallReaders(Command[int]):
    """Notify the readers that wait before the first writer for a name that readers share."""

    name: Name
    group: str
