"""The gate for fences, under ``await``; its table is :func:`dblock.fencing.table`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..fencing import pass_through
from .adapters import ASYNC_ADAPTERS
from .bridge import run
from .transactions import AsyncBorrowable, sync_of

if TYPE_CHECKING:
    from sqlalchemy.schema import Table

__all__ = ["gate"]


async def gate(
    connection: AsyncBorrowable,
    name: str,
    fence: int,
    *,
    table: Table | None = None,
    trust_server: bool = False,
) -> None:
    """Let the holder with this fence write, or refuse it; see :func:`dblock.fencing.gate`."""
    await run(pass_through, sync_of(connection), name, fence, table, trust_server, ASYNC_ADAPTERS)
