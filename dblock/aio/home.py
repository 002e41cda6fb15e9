"""The event loop that AsyncLocks belong to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from ..holding.keeper import guarded
from . import bridge

P = ParamSpec("P")
T = TypeVar("T")


class Home:
    """The loop in which AsyncLocks were first used. ``whose`` names these AsyncLocks in errors."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call sync code in the calling task."""
        self._check_loop()
        return await bridge.run(function, *args, **kwargs)

    async def shielded(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Call sync code in a task of its own. A cancellation of the caller does not reach it."""
        self._check_loop()
        return await bridge.shielded(partial(function, *args, **kwargs))

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise RuntimeError(
                    f"{self._whose} belongs to another event loop, in which it was first used"
                    f"{' and which is closed' if self._loop.is_closed() else ''}: its connections "
                    "work only there. Make AsyncLocks in each loop"
                )
            self._loop = loop

    def here(self, callback: Callable[[T], object]) -> Callable[[T], None]:
        """Return a callback that runs in this loop, whichever thread calls it."""

        def call(told: T) -> None:
            loop = self._loop
            assert loop is not None, "there is no hold before the first use"
            if asyncio._get_running_loop() is loop:
                callback(told)
            else:
                loop.call_soon_threadsafe(guarded, partial(callback, told))

        return call
