"""The locks that this process has made for the databases of Django's settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from .alias import alias as locks_alias


class AliasLocks(Protocol):
    """Locks in the database of an alias."""

    alias: str

    def disconnect(self) -> None: ...


L = TypeVar("L", bound=AliasLocks)


class Registry(Generic[L]):
    """Makes the locks of each alias once.

    The locks for counters are others: dblock.testing moves locks to a database of its own, but a
    counter stays where its table is.
    """

    def __init__(self, make: Callable[[str], L]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: dict[str, L] = {}
        self._counting: dict[str, L] = {}
        #: A decorated function keeps its locks after they are forgotten.
        self._all: WeakSet[L] = WeakSet()

    def made(self, alias: str | None) -> L:
        """Return the locks of an alias, made at the first call. No I/O."""
        return self._once(self._made, locks_alias() if alias is None else alias)

    def counting(self, alias: str) -> L:
        """Return the locks for the counters of an alias."""
        return self._once(self._counting, alias)

    def _once(self, known: dict[str, L], alias: str) -> L:
        with self._making:
            if alias not in known:
                known[alias] = self._make(alias)
            return known[alias]

    def note(self, locks: L) -> None:
        """Note locks whose connections are closed when Django replaces their database."""
        self._all.add(locks)

    def forget(self) -> None:
        """Make new locks from now on. The earlier ones are not closed: they may be in use."""
        with self._making:
            self._made.clear()
            self._counting.clear()

    def disconnect(self, alias: str | None = None) -> list[L]:
        """Close the connections to the database of an alias, or of all; return their locks."""
        found = [locks for locks in list(self._all) if alias in (None, locks.alias)]
        for locks in found:
            locks.disconnect()
        return found
