"""Statements on dblock's own connections. It prepares the statements that every hold needs.

::

    send ── prepared ────> EXECUTE name USING values
      └── not prepared ──> as text

The server takes about as long to parse such a statement as to run it. The name of a prepared
statement is a hash of its text and its database. So all clients give it the same name, if a proxy
lends one session to several clients in turn.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from ...protocol import commands
from ...protocol.faults import Fault
from ..adapter import Adapter, Answer
from ..query import Query

# Each hold needs two of these. Other statements are rare, and the server limits the number of
# prepared statements of all its clients together.
_OF_EACH_HOLD = (commands.Grant, commands.GrantSlot, commands.Release)
# How often a connection sends a statement as text before it prepares it.
_THRESHOLD = 5

# ER_UNKNOWN_STMT_HANDLER: the session does not have the statement, as behind a proxy.
# ER_NEED_REPREPARE: a table was opened again at each of the server's tries.
_GONE = (1243, 1615)


class Sender:
    """Sends one statement at a time, by its ``adapter``."""

    def __init__(self, adapter: Adapter, connection: Any) -> None:
        self._adapter = adapter
        self._connection = connection
        self._sent: Counter[str] = Counter()
        #: By statement: the text to send for it from now on.
        self._texts: dict[str, str] = {}

    def send(self, query: Query[Any], within: float, waits: bool = False) -> Answer:
        """Return a statement's answer, awaited for ``within`` seconds. Raises the driver's errors.

        Each of the two statements that prepare it has as long. ``waits`` is as in :class:`.Send`.
        """
        if isinstance(query.command, _OF_EACH_HOLD):
            text = self._texts.get(query.sql) or self._prepare(query.sql, within)
            if text != query.sql:
                try:
                    return self._send(query._replace(sql=text), within, waits)
                except Exception as error:
                    if not error.args or error.args[0] not in _GONE:
                        raise
                    self._texts[query.sql] = query.sql  # the EXECUTE did nothing
        return self._send(query, within, waits)

    def _send(self, query: Query[Any], within: float, waits: bool = False) -> Answer:
        return self._adapter.send(self._connection, query, within, waits)

    def _prepare(self, sql: str, within: float) -> str:
        """Return the text to send for a statement: its own, until it was sent often."""
        self._sent[sql] += 1
        if self._sent[sql] <= _THRESHOLD:
            return sql
        self._texts[sql] = sql
        try:
            ((database,),), _ = self._send(Query("SELECT DATABASE()", {}), within)
            name, marked, values = prepared(sql, database)
            self._send(Query(f"PREPARE {name} FROM %(statement)s", {"statement": marked}), within)
        except Exception as error:
            if self._adapter.classify(error) not in (None, Fault.REFUSED):
                raise
            return sql  # the server has too many prepared statements, or cannot prepare this one
        self._texts[sql] = f"EXECUTE {name} USING {values}"
        return self._texts[sql]


_PARAMETER = re.compile(r"%\(\w+\)s")


@lru_cache(maxsize=64)
def prepared(sql: str, database: str) -> tuple[str, str, str]:
    """Return a statement's name, its text with ``?`` for each parameter, and the parameters."""
    name = f"dblock_{blake2b(f'{database} {sql}'.encode(), digest_size=16).hexdigest()}"
    return name, _PARAMETER.sub("?", sql), ", ".join(_PARAMETER.findall(sql))
