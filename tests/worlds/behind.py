"""For cases that look behind the public surface, or meddle there, in whatever world."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from dblock import Locks
from dblock.aio import AsyncLocks
from dblock.aio.bridge import await_
from dblock.handles.held import HeldLease
from dblock.io.connections import Connections
from tests.patience import SECONDS
from tests.worlds.surface import Surface

SomeLocks = TypeVar("SomeLocks", Locks, AsyncLocks)
SomeLease = TypeVar("SomeLease", bound=HeldLease)


def timed(locks: SomeLocks, **times: float) -> SomeLocks:
    """Let some Locks that nobody has used yet have other times than usual: see ``Timing``."""
    dialect = locks._database.dialect
    dialect.timing = replace(dialect.timing, **times)
    return locks


def inside(lease: SomeLease) -> SomeLease:
    """What does the lease's work."""
    made: SomeLease = lease.target.sync if isinstance(lease, Surface) else lease
    return made


def run(locks: Locks, protocol: Any) -> Any:
    """Run a protocol as ``locks`` do."""
    if isinstance(locks, Surface):
        return locks.run(locks.target._database.run, protocol)
    return locks._database.run(protocol)


def here() -> str:
    """The name of what calls: a thread, or a task."""
    task = _task()
    return threading.current_thread().name if task is None else task.get_name()


def held_up(wait: Callable[[float], bool], seconds: float) -> bool:
    """Wait in the middle of dblock's own code, a thread or a task alone."""
    return wait(seconds) if _task() is None else bool(await_(asyncio.to_thread(wait, seconds)))


def held_up_once(patch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Hold up the next statement: return the event that tells so, and the one that ends it."""
    begun, go_on = threading.Event(), threading.Event()
    execute = Connections.execute

    def slowly(*args: Any, **options: Any) -> Any:
        if not begun.is_set():
            begun.set()
            assert held_up(go_on.wait, SECONDS)
        return execute(*args, **options)

    patch.setattr(Connections, "execute", slowly)
    return begun, go_on


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running here
        return None
