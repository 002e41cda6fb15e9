"""The sync surface over objects of asyncio: dblock's, and SQLAlchemy's for the user."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.util import greenlet_spawn

from dblock.aio import AsyncCronJob, AsyncHandle

if TYPE_CHECKING:
    from tests.worlds.portal import Asyncio


class Surface:
    """An object of dblock.aio: what is awaited there, the calling thread's task awaits."""

    # What the cases ask of Locks and MultiLock beyond the public surface.
    BESIDES = frozenset({"timeouts", "locks"})

    def __init__(self, world: Asyncio, target: Any) -> None:
        self._world = world
        self.target = target

    def __repr__(self) -> str:
        return repr(self.target)

    def __getattr__(self, name: str) -> Any:
        if name in self.BESIDES and not hasattr(self.target, name):
            return getattr(self.target.sync, name)
        found = self._world.call(getattr, self.target, name)
        if not callable(found) or isinstance(found, AsyncHandle):
            return self._world.surface(found)
        return functools.partial(self._call, found)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "target" or name.startswith("_") or not hasattr(type(self.target), name):
            super().__setattr__(name, value)
        else:
            self._world.call(setattr, self.target, name, value)

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        args = tuple(given(argument) for argument in args)
        kwargs = {name: given(argument) for name, argument in kwargs.items()}
        return self._world.surface(self._world.call(function, *args, **kwargs))

    def __enter__(self) -> Any:
        return self._world.surface(self._world.call(self.target.__aenter__))

    def __exit__(self, *about: Any) -> bool | None:
        held: bool | None = self._world.call(self.target.__aexit__, *about)
        return held

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._world.call(self.target.__anext__)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        made = self.target(_nothing)  # bad arguments are told when it is decorated
        if hasattr(made, "last_run"):
            return JobSurface(self._world, made, self.target, function)

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            return self._world.locked(self.target, functools.partial(function, *args, **kwargs))

        return locked


async def _nothing() -> None: ...


class JobSurface(Surface):
    """A function that is a job."""

    def __init__(
        self, world: Asyncio, job: AsyncCronJob[[], None], cron: Any, function: Callable[..., Any]
    ) -> None:
        functools.update_wrapper(self, function)
        super().__init__(world, job)
        self._cron = cron
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._world.locked(self._cron, functools.partial(self._function, *args, **kwargs))


class Bridged:
    """A Connection or Session of asyncio's sync side; ``target`` is what the user has of it."""

    def __init__(self, world: Asyncio, side: Callable[[], Any], target: Any) -> None:
        self._world = world
        self._side = side
        self.target = target

    def __getattr__(self, name: str) -> Any:
        found = self._world.call(lambda: getattr(self._side(), name))
        if not callable(found):
            return found
        return functools.partial(self.run, found)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what may do I/O."""
        return self._world.call(greenlet_spawn, function, *args, **kwargs)


class BridgedEngine(Bridged):
    """An AsyncEngine's."""

    def __init__(self, world: Asyncio, engine: AsyncEngine) -> None:
        super().__init__(world, lambda: engine.sync_engine, engine)

    @contextmanager
    def connect(self) -> Iterator[Bridged]:
        connection = self._world.call(self.target.connect().start)
        try:
            yield Bridged(self._world, lambda: connection.sync_connection, connection)
        finally:
            self._world.call(connection.close)

    @contextmanager
    def begin(self) -> Iterator[Bridged]:
        with self.connect() as connection:
            yield connection
            connection.commit()

    def execution_options(self, **options: Any) -> BridgedEngine:
        return BridgedEngine(self._world, self.target.execution_options(**options))

    def dispose(self) -> None:
        self._world.call(self.target.dispose)

    @contextmanager
    def borrowed(self, how: str) -> Iterator[Any]:
        """A transaction of the user's, in one of the ways SQLAlchemy has it."""
        if how == "connection":
            with self.connect() as connection:
                yield connection
        elif how == "session":
            session = AsyncSession(self.target)
            try:
                yield Bridged(self._world, lambda: session.sync_session, session)
            finally:
                self._world.call(session.close)
        else:
            scoped = async_scoped_session(async_sessionmaker(self.target), asyncio.current_task)
            try:
                yield Bridged(self._world, lambda: scoped().sync_session, scoped)
            finally:
                self._world.call(scoped.remove)


def given(argument: Any) -> Any:
    """What asyncio has for an argument of a case."""
    return argument.target if isinstance(argument, Surface | Bridged) else argument
