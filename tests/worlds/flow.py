"""A thread's own task in an event loop: what the thread asks for is done there, in turn."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from dblock.aio import AsyncHandle

Do = Callable[[], Any]


class Flow:
    """Made by the thread whose task it is, and named after it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: asyncio.Queue[tuple[Future[Any], Do | None]] = asyncio.Queue()
        asyncio.run_coroutine_threadsafe(
            self._begin(threading.current_thread().name), loop
        ).result()

    async def _begin(self, name: str) -> None:
        # The loop itself knows tasks only weakly.
        self._task = asyncio.get_running_loop().create_task(self._serve(), name=name)

    def call(self, do: Do) -> Any:
        """Call in the task, and await what it returns if that can be."""
        return self._ask(do).result()

    def _ask(self, do: Do | None) -> Future[Any]:
        answer: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._asked.put_nowait, (answer, do))
        return answer

    async def _serve(self) -> None:
        while True:
            answer, do = await self._asked.get()
            if do is None:
                return
            try:
                result = do()
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(result)
                del result
            del answer, do  # a handle that the test drops is to be gone

    def locked(self, lock: AsyncHandle[Any], function: Callable[[], Any]) -> Any:
        """Call a function in the thread while the task is inside the lock's decorated one.

        What the thread asks for meanwhile is done by that task, as in an ``async def``'s body.
        """
        inside: Future[None] = Future()
        outcome: Future[Any] = Future()

        async def body() -> Any:
            inside.set_result(None)
            await self._serve()
            return outcome.result()

        whole = self._ask(lock(body))
        wait((inside, whole), return_when=FIRST_COMPLETED)
        if inside.done():
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)
            self._ask(None)
        return whole.result()
