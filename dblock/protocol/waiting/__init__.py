"""The waiting strategies. :func:`way_to_wait` chooses one by the database, the policy and ``fair``.

::

    Polling      SQLite; MariaDB, if a waiter is fair or counts its tries: join the queue, and poll
    Queueing     PostgreSQL: join the queue, and be notified; the release passes the name on
    ServerWait   MariaDB: wait in the server, for a user lock of the session
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from ..attempt import Attempt
from .polling import Polling, Waiting
from .queueing import Queueing
from .server_wait import ServerWait

if TYPE_CHECKING:
    from ...policy import RetryPolicy
    from ..waiters import Waiter

__all__ = ["Polling", "Queueing", "ServerWait", "Waiting", "way_to_wait"]


def way_to_wait(
    attempt: Attempt,
    policy: RetryPolicy,
    waiter: Waiter,
    line: Hashable,
    *,
    fair: bool,
    can_wait_in_server: bool,
    hot: bool,
) -> Waiting:
    """Return the waiting strategy: ``can_wait_in_server`` and ``hot`` are as with :func:`.acquire`.

    ``line`` is the key of this process's local queue. A waiter that is not ``hot`` has made its
    first try already, and was refused.
    """
    way = Queueing if attempt.dialect.can_notify else Polling
    if can_wait_in_server and policy.endless and not fair:  # the server keeps only a rough order
        way = ServerWait
    return way(attempt, attempt.deadline, policy, waiter, line, fair, hot, number=int(not hot))
