"""Calls that are made once, under ``await``."""

from __future__ import annotations

from typing import Any

from ..handles.once import Once
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
        """Whether the block's transaction is still open, as far as dblock knows without asking.

        If not, the transaction has ended or failed, and no result can be recorded in it.
        """
        return self.sync.active

    @property
    def result(self) -> Any:
        """The result of the call. Set it inside the block, to a value that JSON can express.

        It has at most one mebibyte. A replay gets the same value. Raises TypeError or ValueError
        for a value that JSON cannot express or would change (a tuple, a key that is not text), and
        ValueError for a larger one, outside the block, or if the call was made before.
        """
        return self.sync.result

    @result.setter
    def result(self, result: Any) -> None:
        self.sync.result = result
