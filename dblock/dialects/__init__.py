"""A folder for each database, with its statements and its usual driver's adapter.

A file about one subject has the same name in each folder. The modules beside the folders have the
statements that are nearly the same for all databases.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from ..system.platform import at_fork
from .adapter import Adapter
from .dialect import Dialect

if TYPE_CHECKING:
    from .mariadb import MariaDB
    from .mysql import MySQL
    from .postgresql import PostgreSQL
    from .sqlite import SQLite

__all__ = [
    "ADAPTERS",
    "DIALECTS",
    "Adapter",
    "Dialect",
    "MariaDB",
    "MySQL",
    "PostgreSQL",
    "SQLite",
    "meet",
]

T = TypeVar("T")

_CLASSES = {
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "mysql": "MySQL",
    "sqlite": "SQLite",
}


class _Found(Mapping[str, T]):
    """An object of each database, imported at the first access: a process needs one database."""

    def __init__(self, find: Callable[[str], T]) -> None:
        self._find = find

    def __getitem__(self, name: str) -> T:
        if name not in _CLASSES:
            raise KeyError(name)
        return self._find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


def _dialect(name: str) -> type[Dialect]:
    found: type[Dialect] = getattr(import_module(f".{name}", __name__), _CLASSES[name])
    return found


DIALECTS: Mapping[str, type[Dialect]] = _Found(_dialect)
#: The adapter of each database's usual driver.
ADAPTERS: Mapping[str, type[Adapter]] = _Found(lambda name: _dialect(name).driver)


#: Reentrant, since a garbage collection can run at any point, and with it a finalizer.
_meeting = threading.RLock()
at_fork(before=_meeting.acquire, after_in_parent=_meeting.release, after_in_child=_meeting.release)


def meet(dialect: Dialect) -> None:
    """Let a dialect become the one of the server that its adapter reached last.

    A URL names only the family of MariaDB and MySQL, and so does a user's connection. The server
    says which of the two it is. So this is called after each server was asked, and before any
    statement is made for it: on each new connection of dblock's own, and before the first statement
    in a user's transaction.
    """
    if dialect.adapter.reached in (None, dialect.name):
        return
    with _meeting:
        reached = dialect.adapter.reached
        if reached is not None and reached != dialect.name:
            dialect.become(DIALECTS[reached])


def __getattr__(name: str) -> object:
    for database, its in _CLASSES.items():
        if name == its:
            return _dialect(database)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
