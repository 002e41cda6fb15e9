"""The waiting strategies. :func:`way_to_wait` chooses one by the database, the policy and ``fair``.

::

    Polling      SQLite; MySQL and MariaDB, if a waiter is fair or counts its tries: join the queue,
                 and poll
    Queueing     PostgreSQL: join the queue, and be notified; the release passes the name on
    ServerWait   MySQL and MariaDB: wait in the server, for a user lock of the session
"""

from __future__ import annotations

from ..attempt import Attempt
from .polling import Polling, Waiting, WaitOptions
from .queueing import Queueing
from .server_wait import ServerWait

__all__ = ["Polling", "Queueing", "ServerWait", "WaitOptions", "Waiting", "way_to_wait"]


def way_to_wait(attempt: Attempt, options: WaitOptions, *, hot: bool) -> Waiting:
    """Return the waiting strategy; ``hot`` is as with :func:`.acquire`.

    A waiter that is not ``hot`` has made its first try already, and was refused.
    """
    way = Queueing if attempt.exchange.dialect.traits.can_notify else Polling
    # Not for a fair waiter, because the server keeps only a rough order.
    if options.in_server and options.policy.endless and not options.fair:
        way = ServerWait
    return way(attempt, attempt.exchange, options, options.waiter(), hot, number=int(not hot))
