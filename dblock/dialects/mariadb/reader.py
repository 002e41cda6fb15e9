"""One deadline for a whole answer that PyMySQL reads, in however many parts it arrives.

PyMySQL's own read timeout restarts with each part. It would wait a hundred times as long for a peer
that sends a byte now and then: a proxy, or an overloaded network.
"""

from __future__ import annotations

from typing import Any

from ...system import clock


class Reader:
    """Replaces the file object that a connection reads from."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.file = connection._rfile
        self._until = 0.0

    def bound(self, seconds: float) -> None:
        """Let all reads until the next call of this method end within ``seconds`` from now."""
        self._until = clock.now() + seconds

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or less where the connection ends. Raises TimeoutError."""
        data = b""
        while len(data) < size:
            left = self._until - clock.now()
            if left <= 0:
                raise TimeoutError("the answer did not come in time")
            self._connection._sock.settimeout(left)
            self._connection._current_timeout = left  # PyMySQL sets its own before it writes
            there = len(self.file.peek(1))
            if not there:
                break
            data += self.file.read(min(size - len(data), there))
        return data

    def close(self) -> None:
        self.file.close()
