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
    def active(self) -> bool:
        """Whether its transaction goes on inside the block, as far as can be told without asking.

        If not, it was ended or has failed, and no result can be recorded in it.
        """
        return self.sync.active

    @property
    def result(self) -> Any:
        """What came of the call. Set it inside the block, to what JSON can express.

        That is a mebibyte of it at most. A replay gets the same. Raises TypeError or ValueError for
        what JSON cannot express or would make another one of (a tuple, a key that is no text), and
        ValueError for more, outside the block, or if the call was made before.
        """
        return self.sync.result

    @result.setter
    def result(self, result: Any) -> None:
        self.sync.result = result
