"""Statements on a connection of dblock's own: the server parses those that each hold needs once.

::

    send ── prepared by now ──> EXECUTE name USING values
      └── not, or no more ────> as it is

To parse such a statement takes the server about as long as to run it. A prepared statement's name
says what it is, and of which database. So it is the same whoever has prepared it, where a proxy
lends a session to one client after the other.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from ...protocol import commands
from ...protocol.steps import Query
from ..adapter import Adapter, Answer

# Each hold needs two of them. The others are rare, and a server has not many in all, for everybody.
_OF_EACH_HOLD = (commands.Grant, commands.GrantSlot, commands.Release)
# A connection sends a statement so often before it prepares it.
_THRESHOLD = 5

# ER_UNKNOWN_STMT_HANDLER: it is not there, as behind a proxy. ER_NEED_REPREPARE: a table was opened
# anew each time it was tried.
_GONE = (1243, 1615)


class Sender:
    """Sends one statement after the other, as the ``adapter`` does."""

    def __init__(self, adapter: Adapter, connection: Any) -> None:
        self._adapter = adapter
        self._connection = connection
        self._sent: Counter[str] = Counter()
        #: What is sent for a statement from now on.
        self._texts: dict[str, str] = {}

    def send(self, query: Query[Any], within: float, waits: bool = False) -> Answer:
        """Return a statement's answer, awaited for ``within`` seconds. Raises the driver's errors.

        So is each of the two that prepare it. ``waits`` is as with :class:`.Send`.
        """
        if isinstance(query.command, _OF_EACH_HOLD):
            text = self._texts.get(query.sql) or self._prepare(query.sql, within)
            if text != query.sql:
                try:
                    return self._send(query._replace(sql=text), within, waits)
                except Exception as error:
                    if not error.args or error.args[0] not in _GONE:
                        raise
                    self._texts[query.sql] = query.sql  # nothing came of it
        return self._send(query, within, waits)

    def _send(self, query: Query[Any], within: float, waits: bool = False) -> Answer:
        return self._adapter.send(self._connection, query, within, waits)

    def _prepare(self, sql: str, within: float) -> str:
        """Return what to send for a statement: itself, until it has been sent often."""
        self._sent[sql] += 1
        if self._sent[sql] <= _THRESHOLD:
            return sql
        self._texts[sql] = sql
        try:
            ((database,),), _ = self._send(Query("SELECT DATABASE()", {}), within)
            name, marked, values = prepared(sql, database)
            self._send(Query(f"PREPARE {name} FROM %(statement)s", {"statement": marked}), within)
        except Exception as error:
            if self._adapter.classify(error) is not None:
                raise
            return sql  # the server has too many, or does not prepare this one
        self._texts[sql] = f"EXECUTE {name} USING {values}"
        return self._texts[sql]


_PARAMETER = re.compile(r"%\(\w+\)s")


@lru_cache(maxsize=64)
def prepared(sql: str, database: str) -> tuple[str, str, str]:
    """Return a statement's name, what the server prepares, and its parameters in their order."""
    name = f"dblock_{blake2b(f'{database} {sql}'.encode(), digest_size=16).hexdigest()}"
    return name, _PARAMETER.sub("?", sql), ", ".join(_PARAMETER.findall(sql))
