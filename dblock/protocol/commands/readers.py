"""Readers that share a hold."""

from __future__ import annotations

from .command import Command, Duration, Name


class JoinReaders(Command[int]):
    """Share the unexpired hold with the token ``group``; one row when the reader has joined.

    The hold then lasts for ``ttl`` seconds from now, or until its old expiry if that is later. The
    statement refuses a reader if other waiters are before its ticket in the queue, or if there are
    any waiters and the reader has no ticket. With ``past`` it ignores these waiters. If the queue
    says which waiters are readers, readers do not block each other. The ticket leaves the queue.
    The statement may wait for the row for a moment.
    """

    name: Name
    group: str
    token: str
    ttl: Duration
    ticket: str
    past: bool


class LeaveReaders(Command[int]):
    """Stop sharing the hold; one row when the token shared it. The last reader frees the name and
    notifies the next waiter. It does not pass the name on, since other readers may have open
    transactions that are guarded with the hold."""

    name: Name
    group: str
    token: str


class CallReaders(Command[int]):
    """Notify the readers in the queue before its first writer, while readers hold the name."""

    name: Name
    group: str
