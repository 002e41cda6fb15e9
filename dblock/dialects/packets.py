"""Several statements as one, for a server without compound statements.

On dblock's own connections they are one packet, which costs one round trip. In a user's transaction
they run one after the other. Either way the last statement with rows answers.

::

    START TRANSACTION; SELECT ... FOR UPDATE NOWAIT; UPDATE ...; SELECT the reply; COMMIT
        └── one fails: the server runs none of the rest ──> ROLLBACK
                └── COMMIT fails ──> the outcome is unknown, as after a lost connection

The reply is read before the COMMIT. Otherwise a reply that failed would hide what was changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

from .adapter import Answer
from .query import THEN, Query


class CommitFailed(Exception):
    """The COMMIT of a packet failed, so the outcome is unknown."""


def packet(*statements: str) -> str:
    """Return the text of several statements, each of which is a transaction of its own."""
    return THEN.join(statements)


def transaction(*statements: str) -> str:
    """Return the text of several statements in one transaction. The last one reads the reply."""
    return packet("START TRANSACTION", *statements, "COMMIT")


class Answers:
    """The answers to a packet's statements."""

    def __init__(self, sql: str) -> None:
        self._awaited = sql.count(THEN) + 1
        self._commits = sql.endswith("COMMIT")
        self._has_rows = False
        #: The answer of the last statement with rows; without one, of the last before the COMMIT.
        self.last: Answer = (), 0

    def add(self, rows: Sequence[Sequence[Any]], cursor: Any) -> None:
        """Add the answer that a driver's cursor has now."""
        self._awaited -= 1
        if cursor.description:
            self._has_rows = True
            self.last = rows, cursor.rowcount
        elif not self._has_rows and (self._awaited or not self._commits):
            self.last = (), cursor.rowcount

    @property
    def in_doubt(self) -> bool:
        """Whether all but the COMMIT was answered."""
        return self._commits and self._awaited == 1


class Packing(Protocol):
    """An adapter that can send packets."""

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer: ...

    def send_packet(
        self, connection: Any, query: Query[Any], answers: Answers, within: float, waits: bool
    ) -> None:
        """Run the statements of a packet, and add the answer to each."""

    def is_usable(self, connection: Any) -> bool: ...

    def close(self, connection: Any) -> None: ...


class PacketSender:
    """Sends one statement at a time, or one packet, by its ``adapter``."""

    def __init__(self, adapter: Packing, connection: Any) -> None:
        self._adapter = adapter
        self._connection = connection

    def send(self, query: Query[Any], within: float, waits: bool = False) -> Answer:
        """Return the answer, awaited for ``within`` seconds. Raises the driver's errors, and
        CommitFailed. ``waits`` is as in :class:`.Send`."""
        if THEN not in query.sql:
            return self._adapter.send(self._connection, query, within, waits)
        answers = Answers(query.sql)
        try:
            self._adapter.send_packet(self._connection, query, answers, within, waits)
        except Exception as error:
            if answers.in_doubt:
                self._close()
                raise CommitFailed(*error.args) from error
            self._undo(within)
            raise
        return answers.last

    def _undo(self, within: float) -> None:
        """End the transaction that a failed packet may have left open, with its locks."""
        if not self._adapter.is_usable(self._connection):
            return
        try:
            self._adapter.send(self._connection, Query("ROLLBACK", {}), within)
        except Exception:
            self._close()

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            self._adapter.close(self._connection)
