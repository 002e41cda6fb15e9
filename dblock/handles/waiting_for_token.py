"""The handles that wait for a detached lease, and then move their hold to the client's token."""

from __future__ import annotations

import contextlib
from typing import Protocol

from ..errors import DBLockError, LockLost, NotAcquired, Unavailable
from ..protocol import by_token
from ..protocol.attach import Detached, move
from ..protocol.by_token import TokenAttempt, TokenSharedAttempt
from ..protocol.lease import Held
from .base import Silent
from .lease import Lease
from .semaphore import Semaphore
from .shared import SharedLease


class WaitingForToken(Protocol):
    """A handle that waits with a token of its own, for the client's token."""

    def _acquire(self, wait: float | None) -> NotAcquired | None: ...

    def hand_over(self, attempt: TokenAttempt) -> Held:
        """Move the hold to the token of an attempt."""


class WaitingLease(Silent, Lease):
    """Waits for a lease."""

    def hand_over(self, attempt: TokenAttempt) -> Held:
        database, hold = self._database, self._holds.get(ending=True)
        request = attempt.request
        try:
            self._end(hold, self.ttl)
            detached = Detached(self.name, hold.token, hold.lease.fence)
            exchange = database.exchange(self.name, wait=database.timeouts.socket)
            held = database.run(move(exchange, detached, request))
        except LockLost as loss:
            raise _lost_again(self.name) from loss
        if held.term.over(exchange.now):
            raise by_token.late(self.name, request.ttl)
        return held


class WaitingSharedLease(Silent, SharedLease):
    """Waits for a share."""

    def hand_over(self, attempt: TokenAttempt) -> Held:
        """Join the readers with the client's token too, past the waiters: the handle has waited."""
        assert isinstance(attempt, TokenSharedAttempt)
        attempt.past = True
        try:
            held = self._database.run(by_token.take(attempt, look_first=True))
        finally:
            with contextlib.suppress(DBLockError):  # otherwise its share expires
                self._release()
        if isinstance(held, Held):
            return held
        raise _lost_again(self.name)


class WaitingSemaphore(Silent, Semaphore):
    """Waits for a slot."""

    def hand_over(self, attempt: TokenAttempt) -> Held:
        slot = self.slot
        assert isinstance(slot, WaitingLease)
        held = self._database.run(attempt.find_hold())
        if held is not None:  # another call with the token came first
            with contextlib.suppress(DBLockError):  # otherwise the slot expires
                slot._release()
            return held
        attempt.request.name = slot.name
        return slot.hand_over(attempt)


def _lost_again(name: str) -> Unavailable:
    return Unavailable(
        f"{name!r} was granted, and lost before dblock could tell that: take it again", name=name
    )
