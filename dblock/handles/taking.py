"""One try to take a lease: its request, its wait, and its undoing if the caller is interrupted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..policy import how_often
from ..protocol.acquire import acquire
from ..protocol.exchange import Exchange
from ..protocol.inspect import look
from ..protocol.release import abandon
from ..protocol.waiting import WaitOptions

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..holding.lease_hold import LeaseHold
    from ..io.user_locks import UserLock
    from ..protocol.commands import Command
    from ..protocol.lease import Held, LeaseRequest, Refused
    from ..protocol.release import Find
    from ..protocol.waiters import Waiter
    from .options import LeaseOptions


class Taking:
    """One try to take a lease, and everything that an interruption of the try would leave behind.

    ``request``
        the name may have been granted to its token.
    ``orphaned``
        the queries that end the sessions in which its last statement may still run.
    ``waiter``
        its row in the table of waiters. None until the caller has to wait.
    ``user_lock``
        the session on which it may wait in the server.
    ``hold``
        the hold that this process keeps for it. None until the name is granted.
    """

    __slots__ = ("_database", "hold", "orphaned", "request", "user_lock", "waiter")

    def __init__(self, database: Database, request: LeaseRequest) -> None:
        self._database = database
        self.request = request
        self.orphaned: list[Command[bool]] = []
        self.waiter: Waiter | None = None
        self.user_lock: UserLock | None = None
        self.hold: LeaseHold | None = None

    def run(
        self, options: LeaseOptions, strategy: str, start: float, wait: float | None
    ) -> Held | Refused:
        """Take the lease, waiting up to ``wait`` seconds from ``start``.

        Choose by what this process knows of the name whether to ask first, to read first, or to
        wait first, and where to wait.
        """
        database, name, shares = self._database, self.request.name, self.request.shares
        contenders, dialect, often = database.contenders, database.dialect, options.retry.wait

        def waiter() -> Waiter:
            self.waiter = database.waiter(name, strategy, start, options.label, options.client)
            return self.waiter

        # Only one of this process's waiters with the same poll interval is in the database's queue.
        # So waiters with another interval need a local queue of their own.
        line = name, None if often is None else how_often(often), options.fair
        place = None if wait == 0 else contenders.local_queue.first_place(line)
        # A reader asks before it waits, if no caller of this process is waiting: it may join the
        # present readers. It never waits in the server, only in the name's queue, where it polls
        # and can join them.
        hot = wait != 0 and (place is None or (not shares and contenders.names.hot(name, start)))
        if dialect.traits.can_wait_in_server and wait != 0 and not shares:
            self.user_lock = contenders.user_locks.user_lock(hot)
        procedure = acquire(
            Exchange(dialect, name, start, wait, dialect.timeouts.socket, start),
            self.request,
            WaitOptions(options.retry, line, waiter, options.fair, self.user_lock is not None),
            hot=hot,
            look_first=(wait == 0 or shares) and contenders.names.taken(name),
        )
        return database.run(
            procedure, orphaned=self.orphaned, user_lock=self.user_lock, waiter=place
        )

    def abandon(self, find: Find = look) -> None:
        """Release the name that an interrupted try may have been granted; if that fails, the lease
        expires. Delete the waiter's row.

        ``find`` reads the row that was granted; a semaphore finds the slot.
        """
        database, request = self._database, self.request
        runtime = database.runtime
        # A caller should not wait for this as long as a TTL. If the runtime runs it in the
        # background, no caller waits, so it may try that long.
        patience = request.ttl if runtime.lingers else database.timeouts.connect

        def undo() -> None:
            with contextlib.suppress(Exception):
                exchange = database.exchange(request.name, wait=patience, timeout=patience)
                database.run(abandon(exchange, request, self.orphaned, find))
            if self.waiter is not None:
                with contextlib.suppress(Exception):
                    database.withdraw(self.waiter)

        runtime.finish(undo, cancelled=True)
