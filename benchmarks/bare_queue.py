"""The floor of a lease that is handed on: a queue in a row and a notification, and nothing else.

Two prepared statements through libpq. The first takes the name or joins its queue; the second makes
the name the first waiter's, on disk, and notifies that one alone. There is no witness, no look at
who is dead, nothing to settle a lost reply and nobody who renews: it is for measuring, not for use.
"""

from __future__ import annotations

import os
import select
from typing import Any

from sqlalchemy import make_url

from . import raw

_FREE = "(token IS NULL OR expires_at <= clock_timestamp())"
_TAKE_OR_JOIN = f"""UPDATE raw_queue SET
    fence = fence + CASE WHEN {_FREE} THEN 1 ELSE 0 END,
    waiters = CASE WHEN {_FREE} THEN waiters ELSE array_append(waiters, $2) END,
    expires_at = CASE WHEN {_FREE} THEN clock_timestamp() + interval '30 s' ELSE expires_at END,
    token = CASE WHEN {_FREE} THEN $2 ELSE token END
    WHERE name = $1 RETURNING token = $2"""
_PASS_ON = """UPDATE raw_queue SET
    fence = fence + 1, token = waiters[1], waiters = waiters[2:],
    expires_at = clock_timestamp() + interval '30 s'
    WHERE name = $1 AND token = $2
    RETURNING CASE WHEN token IS NOT NULL THEN pg_notify('raw_' || token, fence::text) END"""


class _Connection:
    """One connection, spoken to through libpq."""

    def __init__(self, connection: Any) -> None:
        self._libpq = connection.pgconn
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)
        self._prepared: set[bytes] = set()

    def run(self, name: bytes, sql: str, *values: bytes) -> Any:
        """Run a statement, prepared the first time; return its result."""
        libpq = self._libpq
        if name not in self._prepared:
            libpq.prepare(name, sql.encode())
            self._prepared.add(name)
        libpq.send_query_prepared(name, values)
        libpq.flush()
        while libpq.is_busy():
            self._poll.poll()
            libpq.consume_input()
        result = libpq.get_result()
        while libpq.get_result() is not None:
            pass
        if result.status not in (1, 2):
            raise RuntimeError(result.error_message.decode())
        return result

    def hear(self) -> None:
        """Wait to be notified."""
        while self._libpq.notifies() is None:
            self._poll.poll()
            self._libpq.consume_input()


class BareQueue(raw.RawClient):
    """Two connections, one of which listens."""

    def __init__(self, url: str) -> None:
        assert make_url(url).get_backend_name() == "postgresql"
        super().__init__(url)
        self._listening = raw.connect(url, autocommit=True)
        self._works, self._listens = _Connection(self.connection), _Connection(self._listening)
        self._token = os.urandom(16).hex()
        self._listening.execute(f"LISTEN raw_{self._token}")

    def make(self, name: str) -> raw.RawLock:
        self.cursor.execute(
            "INSERT INTO raw_queue (name) VALUES (%s) ON CONFLICT DO NOTHING", (name,)
        )
        row, mine = name.encode(), self._token.encode()

        def acquire() -> None:
            taken = self._works.run(b"take", _TAKE_OR_JOIN, row, mine)
            if taken.get_value(0, 0) != b"t":
                self._listens.hear()

        return raw.RawLock(acquire, lambda: self._works.run(b"pass_on", _PASS_ON, row, mine))

    def close(self) -> None:
        self._listening.close()
        super().close()
