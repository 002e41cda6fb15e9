"""The access log: one line of JSON for each request, without tokens and without queries."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from .rights import CALLER

logger = logging.getLogger("dblock.serve.access")


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
    logger.info("%s", json.dumps(line, separators=(",", ":")))
