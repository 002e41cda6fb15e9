"""The user's own transaction in asyncio. The strategies use its sync side."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session

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
