"""Calls that are made once, under ``await``."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..once import Once

if TYPE_CHECKING:
    from .home import Home


class AsyncOnce:
    """A call that is made once, made by :meth:`AsyncLocks.once`; see :class:`dblock.Once`."""

    def __init__(self, home: Home, sync: Once) -> None:
        self._home = home
        self.sync = sync

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    @property
    def key(self) -> str:
        return self.sync.key

    @property
    def replayed(self) -> bool:
        """Whether an earlier call was made with this key: then do nothing, and use its result."""
        return self.sync.replayed

    @property
    def result(self) -> Any:
        """What came of the call. Set it to what JSON can express, at most a mebibyte of it."""
        return self.sync.result

    @result.setter
    def result(self, result: Any) -> None:
        self.sync.result = result

    async def __aenter__(self) -> Self:
        await self._home.run(self.sync.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._home.run(self.sync.__exit__, kind, error, traceback)
