"""Those of this process who want names of one database, as they are to each other and to others."""

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
    """In which order they wait, who of them waits in the server, and what was seen of the names."""

    def __init__(self, connections: Connections, dialect: Dialect, runtime: Runtime) -> None:
        self.local_queue = LocalQueue(connections, dialect.adapter, runtime)
        self.user_locks = UserLocks(connections, dialect)
        self.names = Names()
        self.freed_slots = FreedSlots()
        #: Those who are seen waiting although they hold nothing; see :class:`.Caller`.
        self.seen: dict[object, Waiter] = {}

    def disconnect(self) -> None:
        """Close their connections, those in use once they are not; new ones are made if needed."""
        try:
            self.local_queue.disconnect()
        finally:
            self.user_locks.close()

    def close(self) -> None:
        """Close the connection that is told, and those that have user locks."""
        try:
            self.local_queue.close()
        finally:
            self.user_locks.close()
