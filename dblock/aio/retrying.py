"""Units of work that are coroutine functions, run again after a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from ..conflicts import CONFLICTS, Tries
from ..decorating import wraps
from ..policy import RetryPolicy
from .adapters import ASYNC_ADAPTERS
from .handles import check_coroutine

P = ParamSpec("P")
T = TypeVar("T")


def retry_on_conflict(
    sessions: async_sessionmaker[Any] | Callable[[], AsyncSession],
    *,
    retry: RetryPolicy | None = None,
) -> Callable[
    [Callable[Concatenate[AsyncSession, P], Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]
]:
    """Decorate a unit of work that is a coroutine function: run it again after a conflict.

    See :func:`dblock.retry_on_conflict`.
    """

    def decorate(
        function: Callable[Concatenate[AsyncSession, P], Awaitable[T]],
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        check_coroutine(function)

        @wraps(function)
        async def again(*args: P.args, **kwargs: P.kwargs) -> T:
            tries = Tries(again.__qualname__, retry, ASYNC_ADAPTERS)
            while True:
                try:
                    async with sessions() as session, session.begin():
                        return await function(session, *args, **kwargs)
                except CONFLICTS as error:
                    sleep = tries.sleep_after(error)
                await asyncio.sleep(sleep)

        return again

    return decorate
