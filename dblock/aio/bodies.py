"""Callbacks that run in the event loop, and bodies of ``async with`` that a loss cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..decorating import check_callback, is_coroutine_function
from ..errors import LockLost
from ..holding.keeper import logger
from ..holding.lease_hold import LeaseHold
from .bridge import leave, this_task, whose

T = TypeVar("T")

#: The options of a handle that are callbacks.
CALLBACKS = ("on_danger", "on_lost")


def awaited(options: Mapping[str, Any]) -> dict[str, Callable[[Any], object]]:
    """Return the callbacks among the options, as dblock calls them: a coroutine function runs in a
    task. Raises TypeError."""
    return {
        what: _awaited(what, options[what]) for what in CALLBACKS if options.get(what) is not None
    }


def _awaited(what: str, callback: Callable[[T], object]) -> Callable[[T], object]:
    if not is_coroutine_function(callback):
        return check_callback(what, callback)

    def begin(event: T) -> None:
        leave(asyncio.get_running_loop().create_task(_logged(callback, event)))

    return begin


async def _logged(callback: Callable[[T], Any], event: T) -> None:
    try:
        await callback(event)
    except Exception:
        logger.exception("a callback of a lease failed")


class Bodies:
    """The bodies that run under the holds of one handle.

    It refers to the handle's callback and not to the handle. Otherwise a cycle would keep a dropped
    handle, and its lease, until the next garbage collection.
    """

    def __init__(self, on_lost: Callable[[LockLost], object] | None) -> None:
        self._on_lost = on_lost
        self._running: WeakKeyDictionary[LeaseHold, Body] = WeakKeyDictionary()

    def begin(self, hold: LeaseHold) -> None:
        """Note that the calling task is in the body now."""
        self._running[hold] = Body(this_task())

    def end(self, error: BaseException | None) -> LockLost | None:
        """Note that the calling task's newest body has ended; see :meth:`Body.end`.

        It may have given its hold back itself.
        """
        mine = [hold for hold, body in self._running.items() if body.task is this_task()]
        return self._running.pop(mine[-1]).end(error) if mine else None

    def lose(self, loss: LockLost) -> None:
        """Handle a loss. The caller is in the handle's loop."""
        for hold, body in list(self._running.items()):
            if hold.loss is loss:
                body.lose(loss)
        if self._on_lost is not None:
            self._on_lost(loss)


class Body:
    """One body, run by a task."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self._cancelling = task.cancelling()
        self._loss: LockLost | None = None

    def lose(self, loss: LockLost) -> None:
        """Cancel the body, unless a call of the body found the loss and raises it."""
        if self._loss is None and whose() is not self.task:
            self._loss = loss
            self.task.cancel(f"{loss}")

    def end(self, error: BaseException | None) -> LockLost | None:
        """Return the loss if ``error`` is its cancellation, else None."""
        if self._loss is None:
            return None
        others = self.task.uncancel() > self._cancelling
        if others or not isinstance(error, asyncio.CancelledError):
            return None
        return self._loss
