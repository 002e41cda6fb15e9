"""The access log: one line of JSON for each request, without tokens and without queries."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from .rights import CALLER

logger = logging.getLogger("dblock.serve.access")
#: Seconds that a line may be held back, so that many lines are one write.
TOGETHER = 0.1


def log(scope: Mapping[str, Any], status: int, seconds: float) -> None:
    """Log a request at the level INFO, if that is on.

    The path is the route's, so nothing that a client has put into a path by mistake is logged,
    except the lock's name.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    client = scope.get("client")
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "method": scope["method"],
        "path": scope.get("dblock.route"),
        "name": scope.get("path_params", {}).get("name"),
        "status": status,
        "ms": round(seconds * 1000, 3),
        "caller": scope.get(CALLER),
        "client": client[0] if client else None,
    }
    # The record is made here: `logger.info` would also look for the place of this call, each time.
    logger.handle(logging.LogRecord(logger.name, logging.INFO, "", 0, _encode(line), None, None))


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Writer(logging.StreamHandler[TextIO]):
    """Writes the lines of a moment at once: a write for each costs more than the line."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting = False

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, which needs no formatter."""
        return record.getMessage()

    def flush(self) -> None:
        """Write the lines soon. Called after each line."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # at the end of the process
            super().flush()
            return
        if not self._waiting:
            self._waiting = True
            loop.call_later(TOGETHER, self._write)

    def _write(self) -> None:
        self._waiting = False
        super().flush()
