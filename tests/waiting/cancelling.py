"""A task that takes a name is cancelled at each point of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from dblock.aio import AsyncLocks
from tests.aio.support import async_url, cancelled_at, settled
from tests.support import LONG
from tests.waiting.conftest import NAME
from tests.waiting.user_lock import make_hot_here


def cancel_at_each_point(url: str, how: str, check: Callable[[], None]) -> None:
    """Take the name over and over, as one that is wanted, and check what is left each time."""

    async def main() -> None:
        async with AsyncLocks(async_url(url)) as locks:
            mine = locks.lease(NAME, ttl=LONG)
            for at in count(1):
                await locks.run(make_hot_here, locks._database, NAME)
                cancelled = await cancelled_at(mine.acquire(), at, how)
                await settled(locks)
                assert mine.held is not cancelled
                if not cancelled:
                    await mine.release()
                await asyncio.to_thread(check)
                if not cancelled:
                    assert at > 1
                    return

    asyncio.run(main())
