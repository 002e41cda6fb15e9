"""A database that is a file. dblock connects to it without SQLAlchemy, whose import takes longer
than everything else that the command line does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine


class File:
    """Takes the place of an engine, which is made only when it is needed."""

    def __init__(self, connect: Callable[[], Any], create: Callable[[], Engine]) -> None:
        #: Makes a driver's connection, as the engine would.
        self.connect = connect
        self._create = create

    @cached_property
    def engine(self) -> Engine:
        return self._create()


def engine_of(source: Engine | File) -> Engine:
    """Return an engine that connects to the same database."""
    return source.engine if isinstance(source, File) else source
