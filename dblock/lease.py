"""The lease: a hold with an expiry, kept in a row, with no connection or transaction held."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from . import clock
from .arguments import Seconds, check_label, check_name, check_ttl
from .errors import DBLockError, LockLost, NotAcquired
from .handle import Handle
from .holds import HandleHolds, Hold
from .protocol import leasing
from .protocol.leasing import Claim, Held
from .protocol.term import Term

if TYPE_CHECKING:
    from .borrowed import Borrowable
    from .database import Database
    from .policy import RetryPolicy


class Lease(Handle):
    """A named lease, made by :meth:`Locks.lease`.

    Use it as a context manager, as a decorator, or with :meth:`acquire` and :meth:`release`. One
    Lease can be shared by threads: each acquisition is a hold of its own.

    What it does not do: it does not renew itself, so the work has to end, or call :meth:`renew`,
    within the TTL; and a holder that is paused past its expiry cannot be stopped from outside,
    only be told (:meth:`check`, the end of ``with``) and be kept from committing (:meth:`guard`).
    """

    def __init__(
        self,
        database: Database,
        name: str,
        ttl: Seconds,
        wait: Seconds | None,
        *,
        reentrant: bool,
        retry: RetryPolicy,
        label: str | None,
        on_lost: Callable[[LockLost], None] | None,
    ) -> None:
        super().__init__(wait)
        self.name = check_name(name)
        self.ttl = check_ttl(ttl)
        self.reentrant = reentrant
        self._database = database
        self._retry = retry
        self._label = check_label(label or "")
        self._on_lost = on_lost
        self._holds = HandleHolds("lease", self.name)

    def __repr__(self) -> str:
        state = "held" if self.held else "not held"
        return f"<Lease {self.name!r} ttl={self.ttl:g} {state}>"

    # --- taking and giving back --------------------------------------------------------------

    def try_within(self, wait: float | None) -> NotAcquired | None:
        """Take the lease, waiting up to ``wait`` seconds. One round trip when the name is free.

        Raises DeadlockDetected when this thread would wait for itself, OutcomeUnknown when the
        reply was lost and could not be found out, Unavailable when the database is away.
        """
        threads = self._database.thread_holds
        mine = threads.find(self.name)
        if mine is not None and self.reentrant and mine is self._holds.find():
            mine.count += 1
            return None
        refusal = threads.refuse_self_wait(
            self.name, wait, one_writer=self._database.dialect.one_writer
        )
        if refusal is not None:
            return refusal
        claim = Claim(self.name, secrets.token_hex(16), self._database.owner(self._label), self.ttl)
        start = clock.now()
        hold: Hold | None = None
        try:
            outcome = self._database.run(
                leasing.acquire(
                    self._database.dialect,
                    claim,
                    self._retry,
                    wait=wait,
                    patience=self._database.timeouts.socket,
                    start=start,
                )
            )
            if isinstance(outcome, Held):
                hold = Hold(self.name, lease=outcome, token=claim.token)
                self._holds.add(hold)
                threads.add(hold)
                return None
        except BaseException as error:
            if not isinstance(error, DBLockError):  # KeyboardInterrupt: it may have been granted
                if hold is not None:
                    self._holds.remove(hold)
                self._abandon(claim)
            raise
        return self._database.not_acquired(self.name, outcome, wait)

    def release(self) -> None:
        """Give the lease back. One round trip.

        Raises NotHeld when this handle does not hold it, LockLost when it was lost before, by
        expiry, takeover or force: the work done meanwhile may have overlapped another's.
        """
        hold = self._holds.get(ending=True)
        if hold.count > 1:
            hold.count -= 1
            return
        if self._database.dialect.one_writer:
            self._database.thread_holds.refuse_as_writer(self.name, "released")
        assert hold.lease is not None
        hold.ended = True
        now = clock.now()
        try:
            self._database.run(
                leasing.release(
                    self._database.dialect,
                    self.name,
                    hold.token,
                    hold.lease.fence,
                    self._database.timeouts.socket,
                    now,
                )
            )
        except LockLost as loss:
            self._holds.remove(hold)
            raise self._lose(hold, loss) from loss.__cause__
        except DBLockError as trouble:
            # The hold stays, for another try with its token; but a loss is told before all else.
            if hold.loss is not None or hold.lease.term.over(now):
                self._holds.remove(hold)
                raise self._lose(hold, leasing.expired(self.name)) from trouble
            raise
        self._holds.remove(hold)
        if hold.loss is not None:
            raise hold.loss
        if hold.lease.term.over(now):
            raise self._lose(hold, leasing.expired(self.name))

    # --- while holding it --------------------------------------------------------------------

    def renew(self, ttl: Seconds | None = None) -> None:
        """Move the expiry to ``ttl`` seconds from now (the lease's own TTL if None).

        Tried until the hold's deadline. Raises LockLost when the lease is over: an expired lease
        is not brought back to life, even if nobody else took it.
        """
        length = self.ttl if ttl is None else check_ttl(ttl)
        hold = self._holds.get()
        if self._database.dialect.one_writer:
            self._database.thread_holds.refuse_as_writer(self.name, "renewed")
        with hold.renewing:
            assert hold.lease is not None
            if hold.loss is not None:
                raise hold.loss
            held, now = hold.lease, clock.now()
            asked = Term(now, length)
            if asked.deadline < held.term.deadline:
                # From when it is sent the expiry may be the earlier one, whatever comes back.
                hold.lease = Held(held.fence, asked)
            try:
                term = self._database.run(
                    leasing.renew(self._database.dialect, self.name, hold.token, held, length, now)
                )
            except LockLost as loss:
                raise self._lose(hold, loss) from loss.__cause__
            hold.lease = Held(held.fence, term)

    def check(self) -> None:
        """Return if the lease is still held by the holder's own clock; raise LockLost if not.

        No round trip. Call it before each step that must not happen without the lock.
        """
        hold = self._holds.get()
        assert hold.lease is not None
        if hold.loss is None and hold.lease.term.over(clock.now()):
            self._lose(hold, leasing.expired(self.name))
        if hold.loss is not None:
            raise hold.loss

    @contextlib.contextmanager
    def guard(self, session: Borrowable) -> Iterator[int]:
        """Prove the lease inside the transaction of ``session``, until that transaction ends.

        While it is open a takeover waits; this lease's own renewal does not. A holder whose lease
        has lapsed gets LockLost and must not commit. Yields the fence. Commit inside or after the
        block, as you like: the proof lasts as long as the transaction, or the savepoint that was
        open when it was given.

        On SQLite the transaction becomes the file's one writer: end it before the lease is
        renewed or released, which the thread that tries otherwise is told at once.
        """
        from .borrowed import borrow

        hold = self._holds.get()
        assert hold.lease is not None
        if hold.loss is not None:
            raise hold.loss
        transaction = borrow(session, self._database.dialect)
        try:
            self._database.run(
                leasing.guard(
                    self._database.dialect,
                    self.name,
                    hold.token,
                    hold.lease,
                    self._database.timeouts.socket,
                    clock.now(),
                ),
                transaction,
            )
        except LockLost as loss:
            raise self._lose(hold, loss) from loss.__cause__
        root = transaction.connection.get_transaction()
        if self._database.dialect.one_writer and root is not None:
            self._database.thread_holds.add_borrowed(root, self.name)
        yield hold.lease.fence

    @property
    def held(self) -> bool:
        """Whether this handle holds the lease, by the holder's own clock. No round trip."""
        hold = self._holds.find()
        return hold is not None and hold.alive

    def locked(self) -> bool:
        """Return whether anybody holds a lease on the name, by the database's clock."""
        state, _ = self._database.run(leasing.look(self._database.dialect, self.name, 0.0, 0.0))
        return state is not None and state.held

    @property
    def fence(self) -> int:
        """The fencing token of this hold: larger than that of every earlier hold of the name.

        Send it along with writes to other systems and let them refuse smaller ones: Kleppmann,
        "How to do distributed locking" (2016). Raises NotHeld.
        """
        lease = self._holds.get().lease
        assert lease is not None
        return lease.fence

    @property
    def token(self) -> str:
        """The random proof of ownership that every statement carries. Raises NotHeld."""
        return self._holds.get().token

    @property
    def remaining(self) -> float:
        """Seconds for which the holder may still act, 0.0 when it may not. No round trip."""
        hold = self._holds.find()
        if hold is None or not hold.alive:
            return 0.0
        assert hold.lease is not None
        return hold.lease.term.remaining(clock.now())

    @property
    def lost(self) -> threading.Event:
        """An event that is set when this hold, or else the last one, is found to be lost."""
        hold = self._holds.find() or self._holds.last
        return threading.Event() if hold is None else hold.lost

    # --- inside ------------------------------------------------------------------------------

    def _lose(self, hold: Hold, loss: LockLost) -> LockLost:
        if hold.loss is None:
            hold.loss = loss
            hold.lost.set()
            if self._on_lost is not None:
                self._on_lost(loss)
        return hold.loss

    def _abandon(self, claim: Claim) -> None:
        """Give back what an interrupted acquire may have been granted; if that fails it expires."""
        with contextlib.suppress(Exception):
            self._database.run(leasing.give_back(self._database.dialect, claim))
