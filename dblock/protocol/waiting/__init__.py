"""The ways to wait for a name, of which each database has one.

::

    Polling      SQLite, and behind a pooler: stand in the name's queue, and look now and then
    Queueing     PostgreSQL: stand in it, and be told; the release passes the name on
    ServerWait   MariaDB: wait in the server, for a lock of the session's
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
    """Return how to wait: ``can_wait_in_server`` and ``hot`` are as with :func:`.acquire`.

    ``line`` is that of this process. Who is not hot has been refused once by now.
    """
    way = Queueing if attempt.dialect.can_notify else Polling
    if can_wait_in_server and policy.endless and not fair:  # in the server the order is a rough one
        way = ServerWait
    return way(attempt, policy, waiter, line, fair, hot, number=int(not hot))
