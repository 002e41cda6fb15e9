"""A lease whose hold another process has detached."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..errors import DBLockError, NotAcquired
from ..protocol.attach import Detached, attach
from ..protocol.lease import LeaseRequest
from .lease import Lease
from .taking import Taking

if TYPE_CHECKING:
    from ..holding.database import Database
    from .options import LeaseOptions


class AttachedLease(Lease):
    """A lease that goes on with a detached hold, made by :meth:`Locks.attach`.

    ``with`` and :meth:`acquire` attach the hold. They do not wait for another holder, so
    :meth:`acquire` returns True or raises: LockLost if the hold is over, or goes on elsewhere;
    OutcomeUnknown if no reply came. Everything else is as with any :class:`Lease`.
    """

    _kind = "AttachedLease"

    def __init__(self, database: Database, options: LeaseOptions, detached: Detached) -> None:
        super().__init__(database, detached.name, options)
        self._from = detached

    def _try_within(self, wait: float | None) -> NotAcquired | None:
        """Attach the hold. One round trip."""
        database, options = self._database, self._options
        if database.dialect.traits.one_writer:
            database.callers.refuse_as_writer(self.name, "attached")
        token, owner = database.runtime.token(16), database.owner(options.label)
        request = LeaseRequest(self.name, token, owner, options.plan.first)
        exchange = database.exchange(self.name, wait=database.timeouts.socket)
        taking = Taking(database, request)
        try:
            attaching = attach(exchange, self._from, request)
            held = database.run(attaching, orphaned=taking.orphaned)
            self._keep(taking, held, exchange.start)
        except BaseException as error:
            if not isinstance(error, DBLockError):  # e.g. KeyboardInterrupt: it may be attached
                database.runtime.undo(error, partial(self._undo, taking))
            raise
        return None
