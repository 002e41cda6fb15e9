"""The state that this process's callers of one database share: order of waiters, user locks, hints.

A hint is what the process remembers of a name. With it a caller chooses the cheapest statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .local_queue import LocalQueue
from .user_locks import UserLocks

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..protocol.waiters import Waiter
    from .connections import Connections
    from .runtime import Runtime


# Seconds that a name stays hot after it was granted to a waiter. And the names remembered, at most.
LASTS, MOST = 1.0, 1024


class Names:
    """The names that this process has held. Each of them most likely has a row; others may have."""

    def __init__(self) -> None:
        #: By name: the time until which it is hot.
        self._hot: dict[str, float] = {}
        #: The names that had another holder when this process asked last.
        self._taken: set[str] = set()

    def note_refusal(self, name: str) -> None:
        """Note that a name has another holder."""
        if len(self._taken) >= MOST:
            self._taken.clear()
        self._taken.add(name)

    def taken(self, name: str) -> bool:
        """Return whether a name had another holder when this process asked last."""
        return name in self._taken

    def note(self, name: str, contended: bool, now: float) -> None:
        """Note that a name was granted, and whether other callers wanted it too."""
        self._taken.discard(name)
        if len(self._hot) >= MOST:
            self._hot.clear()
        if contended:
            self._hot[name] = now + LASTS
        else:
            self._hot.setdefault(name, 0.0)

    def known(self, name: str) -> bool:
        """Return whether this process has held a name."""
        return name in self._hot

    def hot(self, name: str, now: float) -> bool:
        """Return whether a caller that wants the name is likely to wait. It holds for one wait."""
        until = self._hot.get(name, 0.0)
        if until:
            self._hot[name] = 0.0
        return until > now


class FreedSlots:
    """The slots that this process has released, for semaphores whose last slot it got at once.

    Such a slot is most likely free still: other processes begin their search at random, and none of
    them waits. Each thread gets another slot. If callers wait for a semaphore, a released slot is
    soon another holder's, so none is remembered.
    """

    def __init__(self) -> None:
        #: By semaphore: the slots' numbers, the last released one at the end.
        self._numbers: dict[str, dict[int, None]] = {}

    def note(self, semaphore: str) -> None:
        """Note that a slot was granted at once."""
        if semaphore not in self._numbers:
            if len(self._numbers) >= MOST:
                self._numbers.clear()
            self._numbers[semaphore] = {}

    def forget(self, semaphore: str) -> None:
        """Forget a semaphore's slots, because a caller has to wait for one."""
        self._numbers.pop(semaphore, None)

    def give_back(self, semaphore: str, number: int) -> None:
        """Note that a slot is released."""
        numbers = self._numbers.get(semaphore)
        if numbers is not None:
            numbers[number] = None

    def pop(self, semaphore: str, limit: int) -> int | None:
        """Remove and return a slot within the limit, so that no other thread asks for it."""
        numbers = self._numbers.get(semaphore)
        while numbers:
            try:
                number, _ = numbers.popitem()
            except KeyError:  # another thread has it
                break
            if number <= limit:
                return number
        return None


class Contenders:
    """The waiters' order, the user locks that some wait for in the server, and the hints about the
    names."""

    def __init__(self, connections: Connections, dialect: Dialect, runtime: Runtime) -> None:
        #: Each is in use while its row or user lock is held or waited for, or while it listens.
        self.connections = connections
        self.local_queue = LocalQueue(connections, dialect.adapter, runtime)
        self.user_locks = UserLocks(connections, dialect)
        self.names = Names()
        self.freed_slots = FreedSlots()
        #: The waiters that are recorded in the database although they hold nothing; see
        #: :class:`.Caller`.
        self.seen: dict[object, Waiter] = {}

    def disconnect(self) -> None:
        """Close the connections, and each one in use once it is returned. New ones are made when
        needed."""
        try:
            self.local_queue.disconnect()
        finally:
            self.user_locks.close()

    def close(self) -> None:
        """Close the connection that listens, and the connections that have user locks."""
        try:
            self.local_queue.close()
        finally:
            self.user_locks.close()
