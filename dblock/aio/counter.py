"""Counters under ``await``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..counters.counter import Counter
from ..counters.numbers import N, Number
from .transactions import AsyncBorrowable, sync_of

if TYPE_CHECKING:
    from .bridge import Home


class AsyncCounter:
    """A number in a row of one of your tables; see :class:`dblock.Counter`."""

    def __init__(self, home: Home, sync: Counter) -> None:
        self._home = home
        self.sync = sync

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    async def take(
        self,
        session: AsyncBorrowable,
        key: Any,
        n: Number = 1,
        *,
        idempotency_key: str | None = None,
    ) -> bool:
        """Take ``n`` off. Raises NotEnough, and changes nothing, if that would go below the floor.

        See :meth:`dblock.Counter.take` for ``idempotency_key`` and the result.
        """
        return await self._home.run(
            self.sync.take, sync_of(session), key, n, idempotency_key=idempotency_key
        )

    async def add(
        self,
        session: AsyncBorrowable,
        key: Any,
        n: Number = 1,
        *,
        idempotency_key: str | None = None,
    ) -> bool:
        """Add ``n``. It works like :meth:`take`, but does not check the floor."""
        return await self._home.run(
            self.sync.add, sync_of(session), key, n, idempotency_key=idempotency_key
        )

    async def compare_and_update(
        self, session: AsyncBorrowable, key: Any, *, seen: Number, new: Number
    ) -> bool:
        """Set the counter to ``new`` if it is still ``seen``; return False if not.

        See :meth:`dblock.Counter.compare_and_update`.
        """
        return await self._home.run(
            self.sync.compare_and_update, sync_of(session), key, seen=seen, new=new
        )

    async def update(self, session: AsyncBorrowable, key: Any, change: Callable[[Any], N]) -> N:
        """Set the counter to ``change(value)``; return the new value.

        ``change`` is a plain function that does not wait. See :meth:`dblock.Counter.update`.
        """
        return await self._home.run(self.sync.update, sync_of(session), key, change)

    async def value(self, session: AsyncBorrowable, key: Any) -> Any:
        """Read the counter. Raises LookupError if there is no such row."""
        return await self._home.run(self.sync.value, sync_of(session), key)

    async def spread(self, session: AsyncBorrowable, key: Any) -> None:
        """Spread a key's number over its stripes; see :meth:`dblock.Counter.spread`."""
        await self._home.run(self.sync.spread, sync_of(session), key)
