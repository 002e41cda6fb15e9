"""Calls that are made once, under ``await``."""

from __future__ import annotations

from typing import Any

from ..once import Once
from .handles import AsyncContext


class AsyncOnce(AsyncContext[Once]):
    """A call that is made once, made by :meth:`AsyncLocks.once`; see :class:`dblock.Once`."""

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
