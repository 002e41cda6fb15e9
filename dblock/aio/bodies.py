"""The bodies of ``async with``, which a loss cancels if asked, as :func:`asyncio.timeout` does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import LockLost
from ..holding.lease_hold import LeaseHold
from .bridge import this_task, whose


class Bodies:
    """Those that run under one handle's holds.

    It knows the handle's callback, not the handle, which is told of by what it holds: a cycle
    would keep a dropped one, and its lease, until the next garbage collection.
    """

    def __init__(self, on_lost: Callable[[LockLost], object] | None) -> None:
        self._on_lost = on_lost
        self._running: WeakKeyDictionary[LeaseHold, Body] = WeakKeyDictionary()

    def begin(self, hold: LeaseHold) -> None:
        """The calling task is in the body now."""
        self._running[hold] = Body(this_task())

    def end(self, hold: LeaseHold, error: BaseException | None) -> LockLost | None:
        """The body has ended; see :meth:`Body.end`."""
        body = self._running.pop(hold, None)
        return None if body is None else body.end(error)

    def lose(self, loss: LockLost) -> None:
        """Tell of a loss. Called in the handle's loop."""
        for hold, body in list(self._running.items()):
            if hold.loss is loss:
                body.lose(loss)
        if self._on_lost is not None:
            self._on_lost(loss)


class Body:
    """One body, run by a task."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._cancelling = task.cancelling()
        self._loss: LockLost | None = None

    def lose(self, loss: LockLost) -> None:
        """Cancel it, unless it is the body's own call that found it out and raises it."""
        if self._loss is None and whose() is not self._task:
            self._loss = loss
            self._task.cancel(f"{loss}")

    def end(self, error: BaseException | None) -> LockLost | None:
        """Return the loss that ``error`` is the cancellation of; None when it is anything else."""
        if self._loss is None:
            return None
        others = self._task.uncancel() > self._cancelling
        if others or not isinstance(error, asyncio.CancelledError):
            return None
        return self._loss
