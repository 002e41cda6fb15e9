"""The state that this process's waiters for the names of one database share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .local_queue import LocalQueue
from .names import FreedSlots, Names
from .user_locks import UserLocks

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..protocol.waiters import Waiter
    from .connections import Connections
    from .runtime import Runtime


class Contenders:
    """The waiters' order, the user locks that some wait for in the server, and the hints about the
    names."""

    def __init__(self, connections: Connections, dialect: Dialect, runtime: Runtime) -> None:
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
