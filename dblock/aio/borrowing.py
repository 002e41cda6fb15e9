"""The user's own transaction in asyncio: its sync side is what the strategies use."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session

AsyncBorrowable = AsyncConnection | AsyncSession | async_scoped_session[Any]


def sync_of(on: AsyncBorrowable) -> Connection | Session:
    """Return what ``on`` is the asyncio side of.

    Raises TypeError for what is none, ValueError for a connection that was not begun.
    """
    if isinstance(on, async_scoped_session):
        on = on()
    if isinstance(on, AsyncSession):
        return on.sync_session
    if not isinstance(on, AsyncConnection):
        raise TypeError(
            f"on= is an SQLAlchemy AsyncConnection, AsyncSession or async_scoped_session here, not "
            f"{type(on).__name__}: {on!r}"
        )
    if on.sync_connection is None:
        raise ValueError(
            "nothing can be locked on this connection: it has not been begun (`async with "
            "engine.connect()` or `await connection`), or is closed"
        )
    return on.sync_connection
