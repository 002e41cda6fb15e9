"""The user's own transactions in asyncio: their sync side, and units of work.

dblock's locks and counters use the sync side. A unit of work is a coroutine function that runs in a
transaction, and again after a conflict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.orm import Session

from ..conflicts import CONFLICTS, Tries
from ..decorating import check_coroutine, wraps
from ..policy import RetryPolicy
from .adapters import ASYNC_ADAPTERS

P = ParamSpec("P")
T = TypeVar("T")

AsyncBorrowable = AsyncConnection | AsyncSession | async_scoped_session[Any]


def sync_of(on: AsyncBorrowable) -> Connection | Session:
    """Return the sync side of ``on``.

    Raises TypeError if ``on`` is something else, and ValueError for a connection that is not open.
    """
    if isinstance(on, async_scoped_session):
        on = on()
    if isinstance(on, AsyncSession):
        return on.sync_session
    if not isinstance(on, AsyncConnection):
        raise TypeError(
            f"give an SQLAlchemy AsyncConnection, AsyncSession or async_scoped_session, not "
            f"{type(on).__name__}: {on!r}"
        )
    if on.sync_connection is None:
        raise ValueError(
            "this connection is closed, or not open yet, so nothing can be locked on it: open it "
            "with `async with engine.connect()` or `await connection`"
        )
    return on.sync_connection


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
