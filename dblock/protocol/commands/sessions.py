"""Transactions and sessions. The connections send most of these themselves: dialects register only
:class:`EndSession`."""

from __future__ import annotations

from typing import Any

from .command import Command


class Begin(Command[int]):
    """Begin a row lock's own transaction."""


class Commit(Command[int]):
    """Commit a row lock's own transaction, which releases its row locks."""


class Rollback(Command[int]):
    """Roll back a row lock's own transaction."""


class Probe(Command[int]):
    """Check that a row lock's own transaction still exists."""


class Savepoint(Command[int]):
    """Create a savepoint in the user's transaction."""


class UndoSavepoint(Command[int]):
    """Roll back to the savepoint, which releases the rows locked since."""


class EndSavepoint(Command[int]):
    """Release the savepoint."""


class EndSession(Command[bool]):
    """End a session, even while it runs a statement; return whether it was there.

    ``number`` is the server's own number for it. The server may use the number again: ``mark`` is
    the time since when the session exists, or its client's address.
    """

    number: int
    mark: Any
