"""Taking and releasing in a thread, for tasks that may be cancelled in the middle.

A cancelled task leaves a function that already runs in a thread alone. So the thread itself undoes
what it did for a task that is gone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import sync_to_async

from ...errors import NotAcquired


async def take(
    acquire: Callable[[], NotAcquired | None], release: Callable[[], object]
) -> NotAcquired | None:
    """Run ``acquire`` in a thread; return the refusal, or None if the lock is held now.

    If the task is cancelled in between and the lock is granted, ``release`` runs.
    """
    both, granted, cancelled = threading.Lock(), False, False

    def in_thread() -> NotAcquired | None:
        nonlocal granted
        refusal = acquire()
        with both:
            granted = refusal is None
            late = granted and cancelled
        if late:
            release()
        return refusal

    try:
        return await sync_to_async(in_thread)()
    except asyncio.CancelledError:
        with both:
            cancelled = True
            early = granted
        if early:
            await finish(sync_to_async(release)())
        raise


async def finish(work: Coroutine[Any, Any, object]) -> None:
    """Await something to its end, also if the task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
