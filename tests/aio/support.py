"""What the files of tests for asyncio share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from dblock.aio import AsyncLocks
from tests.support import SECONDS

DRIVERS = {"mysql": "mysql+asyncmy", "sqlite": "sqlite+aiosqlite"}


def async_url(url: str) -> str:
    """The URL of the same database for an event loop's driver."""
    name, rest = url.split("://", 1)
    backend = name.split("+")[0]
    return f"{DRIVERS.get(backend, name)}://{rest}"
