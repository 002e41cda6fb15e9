"""The table of waiters."""

from __future__ import annotations

from collections.abc import Mapping

from ...lock_state import WaiterState
from ..deadlock import Blocked
from .command import Command, Duration, Name


class Register(Command[int]):
    """Insert a waiter's row, or extend it for ``lasts`` seconds from now."""

    id: str
    name: Name
    strategy: str
    owner: str
    waited: Duration
    lasts: Duration
    holds: Mapping[str, int | None]


class Unregister(Command[int]):
    """Delete a waiter's row."""

    id: str


class Sweep(Command[int]):
    """Delete the rows of waiters that have expired, without waiting for other sweeps."""


class ListWaiters(Command[dict[str, tuple[WaiterState, ...]]]):
    """Read the waiters of a name, or of all names."""

    name: Name | None = None


class ListBlocked(Command[list[Blocked]]):
    """Read all waiters that hold something, each with the fence of the lease it waits for."""
