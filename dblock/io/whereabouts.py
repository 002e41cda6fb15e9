"""Finds out whether a user's transaction is in the database of the locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..protocol import place

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..protocol.steps import Procedure
    from .borrowed import Borrowed
    from .runtime import Runtime


class Whereabouts:
    """Finds the place of the tables, before dblock runs statements in users' transactions."""

    def __init__(self, dialect: Dialect, run: Callable[..., Any], runtime: Runtime) -> None:
        self._dialect = dialect
        self._run = run
        self._runtime = runtime
        #: Whether only the user's connection can reach the database: it is in memory.
        self.alone: Callable[[], bool] = bool

    def find(self, transaction: Borrowed) -> None:
        """Find the place of the tables, unless it is known."""
        if self._dialect.place is None:
            self._do(place.locate(self._dialect, *self._patience, alone=self.alone()), transaction)

    def moved(self, transaction: Borrowed, name: str) -> bool:
        """Check why a statement matched no row; see :func:`.place.check`."""
        moved: bool = self._do(place.check(self._dialect, name, *self._patience), transaction)
        return moved

    def _do(self, procedure: Procedure[Any], transaction: Borrowed) -> Any:
        return self._run(procedure, transaction)

    @property
    def _patience(self) -> tuple[float, float]:
        return self._dialect.timeouts.socket, self._runtime.now()
