"""How the sync code runs in an event loop: in a greenlet, which hands its waits to the loop.

::

    async def acquire(self):              # only this line exists twice
        return await run(sync.acquire)
                      │
                      └─ greenlet ──> Lease.acquire ──> the procedure ──> Adapter.send
                             ^                                               │
                             └────────── await_(the driver's coroutine) <────┘

SQLAlchemy uses the same bridge, so the user's own sessions and connections work here.

A cancellation never hits a driver in the middle of a statement. dblock first waits for the answer,
in a task of its own if the driver does the waiting. So it knows what the statement did, and can use
the connection again. :func:`check` raises the cancellation afterwards. Only a statement that waits
for others, a row lock, is cut short, and its connection is thrown away.

AsyncLocks belong to one event loop, their :class:`Home`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import ref

from sqlalchemy.util import concurrency, greenlet_spawn

from ..holding.keeper import guarded

P = ParamSpec("P")
T = TypeVar("T")

# SQLAlchemy 2.0 has it under its old name.
await_: Callable[[Any], Any] = getattr(concurrency, "await_", None) or concurrency.await_only

# How many seconds a cancelled caller waits for what cannot be cut short.
GRACE = 1.0

#: Makes a cancellation again, to be raised later. Keeping the exception itself would keep the
#: frames of its traceback alive, and the handles in them.
Again = Callable[[], asyncio.CancelledError]

# The cancellations that came during a statement and have not been raised yet.
_pending: dict[asyncio.Task[Any], Again] = {}
# Which task acts for which, so that both count as the same caller. The references are weak, because
# a connection that is made meanwhile keeps the context.
_acting: ContextVar[tuple[ref[asyncio.Task[Any]], ref[asyncio.Task[Any]]] | None] = ContextVar(
    "dblock_acting", default=None
)
# Tasks that go on although no caller waits for them.
_background: set[asyncio.Future[Any]] = set()


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("use dblock.aio in a task: this is a callback of the event loop")
    return task


def whose() -> asyncio.Task[Any] | None:
    """Return the user's task that calls, or for which this task acts."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop is running here
        return None
    acting = _acting.get()
    # A task that an acting task made has the variable too, but does not act for another.
    return acting[1]() if acting is not None and acting[0]() is task else task


async def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call sync code in the calling task. It waits through :data:`await_`."""
    task = this_task()
    try:
        result = await greenlet_spawn(partial(function, *args, **kwargs))
    except asyncio.CancelledError:
        _pending.pop(task, None)
        raise
    except BaseException as error:
        cancelled = _pending.pop(task, None)
        if cancelled is not None:
            raise cancelled() from error
        raise
    check()
    return result


def check() -> None:
    """Raise the cancellation that came during the last statement, if one did."""
    cancelled = _pending.pop(this_task(), None) if _pending else None
    if cancelled is not None:
        raise cancelled()


def again(cancelled: asyncio.CancelledError) -> Again:
    return partial(asyncio.CancelledError, *cancelled.args)


def answer(
    statement: Coroutine[Any, Any, T],
    *,
    within: float | None = None,
    give_up: Callable[[], object],
    waits: bool,
    after: float = GRACE,
) -> T:
    """Wait for a statement's answer, even if the caller is cancelled.

    If the statement ``waits`` for others, a cancellation cuts it short. After ``within`` seconds
    call ``give_up``, which ends the connection, give the task ``after`` seconds to notice that, and
    raise TimeoutError.
    """
    if waits and _pending:
        try:
            check()
        except asyncio.CancelledError:
            statement.close()
            raise
    result: T = await_(_answer(statement, within, give_up, waits, after))
    return result


def ready(descriptor: int, seconds: float, *, writing: bool = False, waits: bool = True) -> bool:
    """Wait up to ``seconds`` until a descriptor can be read, or written to if ``writing``.

    Return whether it can. If the caller is cancelled, it goes on for a moment, as with
    :func:`answer`, unless the statement ``waits`` for others.
    """
    if waits and _pending:
        check()
    return bool(await_(_ready(descriptor, seconds, writing, waits)))


async def _ready(descriptor: int, seconds: float, writing: bool, waits: bool) -> bool:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()
    timer = loop.call_later(seconds, _tell, ready, False)
    _watch(loop, descriptor, ready, writing)
    try:
        return await ready
    except asyncio.CancelledError as error:
        cancelled = again(error)
        if ready.cancelled():
            if waits:
                raise
            ready = loop.create_future()
            _watch(loop, descriptor, ready, writing)
            await outlast(ready, min(seconds, GRACE))
            if not ready.done():
                ready.cancel()
                raise cancelled() from None
        _pending.setdefault(this_task(), cancelled)
        return ready.result()
    finally:
        timer.cancel()
        loop.remove_reader(descriptor)
        if writing:
            loop.remove_writer(descriptor)


def _watch(
    loop: asyncio.AbstractEventLoop, descriptor: int, ready: asyncio.Future[bool], writing: bool
) -> None:
    loop.add_reader(descriptor, _tell, ready, True)
    if writing:
        loop.add_writer(descriptor, _tell, ready, True)


def _tell(ready: asyncio.Future[bool], whether: bool) -> None:
    if not ready.done():
        ready.set_result(whether)


async def _answer(
    statement: Coroutine[Any, Any, T],
    within: float | None,
    give_up: Callable[[], object],
    waits: bool,
    after: float,
) -> T:
    task = begin(statement)
    cancelled = None
    try:
        await asyncio.wait((task,), timeout=within)
    except asyncio.CancelledError as error:
        cancelled = again(error)
        if not waits:
            await outlast(task, GRACE)
    if not task.done():
        give_up()
        cancelled = await outlast(task, after) or cancelled
        if cancelled is not None:
            raise cancelled()
        raise TimeoutError
    if cancelled is None:
        return task.result()
    if task.cancelled() or task.exception() is not None:
        raise cancelled()
    _pending[this_task()] = cancelled
    return task.result()


async def outlast(task: asyncio.Future[Any], grace: float | None = None) -> Again | None:
    """Wait for a task in spite of cancellations; return the first cancellation, if any.

    Wait for ``grace`` seconds, or without it until :data:`GRACE` after a cancellation. If the task
    is not done then, it goes on in the background.
    """
    loop = asyncio.get_running_loop()
    until = None if grace is None else loop.time() + grace
    cancelled = None
    while not task.done():
        left = None if until is None else until - loop.time()
        if left is not None and left <= 0:
            leave(task)
            break
        try:
            await asyncio.wait((task,), timeout=left)
        except asyncio.CancelledError as error:
            cancelled = cancelled or again(error)
            until = until or loop.time() + GRACE
    return cancelled


def begin(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin a task. If it fails and no caller takes the error, the loop does not log it."""
    task = asyncio.get_running_loop().create_task(coroutine)
    task.add_done_callback(_ended)
    return task


def leave(task: asyncio.Future[Any]) -> None:
    """Let a task go on in the background."""
    if not task.done():
        _background.add(task)
        task.add_done_callback(_ended)


def _ended(task: asyncio.Future[Any]) -> None:
    _background.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that the loop does not complain


async def drain() -> None:
    """Wait for the background tasks of this loop."""
    loop = asyncio.get_running_loop()
    while tasks := [task for task in _background if task.get_loop() is loop]:
        await asyncio.wait(tasks)


def finish(function: Callable[[], T], within: float | None) -> T | None:
    """Call sync code in a task of its own. A cancellation of the caller does not reach it."""
    acting = _acting.get()
    if acting is not None and acting[0]() is this_task():  # it is in one already
        return function()
    result: T | None = await_(shielded(function, within))
    return result


async def shielded(function: Callable[[], T], within: float | None = None) -> T | None:
    """As :func:`finish`, called by a coroutine rather than by sync code."""
    whom = whose()
    if whom is None:
        this_task()  # raises if this is no task at all; else the task that this acts for has ended
    task = act_for(whom, function)
    cancelled = await outlast(task, within)
    if cancelled is None:
        return task.result() if task.done() else None
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        raise cancelled() from error
    raise cancelled()


def act_for(whom: asyncio.Task[Any] | None, function: Callable[[], T]) -> asyncio.Task[T]:
    """Begin a task that calls sync code in the name of another task."""

    async def act() -> T:
        if whom is not None:
            _acting.set((ref(this_task()), ref(whom)))
        return await run(function)

    return begin(act())


def connect(make: Callable[[], T], keep: Callable[[T], None]) -> T:
    """Call sync code that connects. If the caller is cancelled, ``keep`` gets the connection."""
    result: T = await_(_connect(make, keep))
    return result


async def _connect(make: Callable[[], T], keep: Callable[[T], None]) -> T:
    task = act_for(whose(), make)
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:

        def made(task: asyncio.Task[T]) -> None:
            if not task.cancelled() and task.exception() is None:
                keep(task.result())

        task.add_done_callback(made)
        leave(task)
        raise
    return task.result()


class Home:
    """The loop in which AsyncLocks were first used. ``whose`` names these AsyncLocks in errors."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call sync code in the calling task."""
        self._check_loop()
        return await run(function, *args, **kwargs)

    async def shielded(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Call sync code in a task of its own. A cancellation of the caller does not reach it."""
        self._check_loop()
        return await shielded(partial(function, *args, **kwargs))

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
