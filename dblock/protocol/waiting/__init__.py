"""The waiting strategies. :func:`way_to_wait` chooses one by the database, the policy and ``fair``.

::

    Polling      SQLite; MariaDB, if a waiter is fair or counts its tries: join the queue, and poll
    Queueing     PostgreSQL: join the queue, and be notified; the release passes the name on
    ServerWait   MariaDB: wait in the server, for a user lock of the session
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

from ..attempt import Attempt
from .polling import Polling, Waiting
from .queueing import Queueing
from .server_wait import ServerWait

if TYPE_CHECKING:
    from ...policy import RetryPolicy
    from ..waiters import Waiter

__all__ = ["Polling", "Queueing", "ServerWait", "WaitOptions", "Waiting", "way_to_wait"]


class WaitOptions(NamedTuple):
    """How a caller waits if it has to.

    ``line`` is the key of this process's local queue. ``waiter`` makes the entry in the table of
    waiters; it is called only if the caller has to wait. ``fair`` keeps the order of arrival on
    every database. ``in_server`` says that a connection for a wait in the server may be available.
    """

    policy: RetryPolicy
    line: Hashable
    waiter: Callable[[], Waiter]
    fair: bool = False
    in_server: bool = False


def way_to_wait(attempt: Attempt, options: WaitOptions, *, hot: bool) -> Waiting:
    """Return the waiting strategy; ``hot`` is as with :func:`.acquire`.

    A waiter that is not ``hot`` has made its first try already, and was refused.
    """
    policy, line, waiter, fair, in_server = options
    way = Queueing if attempt.dialect.can_notify else Polling
    if in_server and policy.endless and not fair:  # the server keeps only a rough order
        way = ServerWait
    number = int(not hot)
    return way(attempt, attempt.deadline, policy, waiter(), line, fair, hot, number)
