"""Leases that no handle holds: a process that knows the token takes, renews and releases them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..arguments import Seconds, check_ttl, check_wait
from ..errors import DBLockError, NotAcquired
from ..events import Kind, outcome
from ..protocol import by_token, election
from ..protocol.by_token import TokenAttempt, TokenSharedAttempt, TokenSlotAttempt
from ..protocol.doubt import Doubt
from ..protocol.exchange import Exchange
from ..protocol.lease import Held, LeaseRequest, Refused
from ..protocol.tokens import for_reader
from .base import Named
from .election import check_value
from .options import LeaseOptions, plan
from .waiting_for_token import (
    WaitingForToken,
    WaitingLease,
    WaitingSemaphore,
    WaitingSharedLease,
)

if TYPE_CHECKING:
    from ..holding.database import Database


#: Seconds: the longest TTL of the hold of a handle that waits for a token, until the token has it.
HAND_OVER = 10.0


@dataclass(frozen=True)
class DetachedHold:
    """A lease as it was taken or renewed by its token.

    ``name``
        the name that the token holds. If it is a semaphore's slot, a name such as ``api#2``.
    ``fence``
        its fencing token; see :attr:`Lease.fence`.
    ``expires_in``
        for how many seconds the holder may act, counted from the moment before the call. It is
        shorter than the TTL by a margin, and longer by the time that the caller waited.
    ``repeated``
        whether the token had the name before this call, which has renewed it.
    """

    name: str
    fence: int
    expires_in: float
    repeated: bool = False


class ByToken(Named, ABC):
    """The base of leases and semaphores that are taken by a token alone."""

    def __init__(
        self, database: Database, name: str, options: LeaseOptions, token: str, owner: str
    ) -> None:
        self.name = name
        #: The secret that is the hold.
        self.token = token
        #: The holder's owner label, for people.
        self.owner = owner
        self._database = database
        self._options = options

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has connections, which you cannot send to another process: send the name "
            "and the token, and make it there from Locks"
        )

    def take(self, ttl: Seconds = 30.0, wait: Seconds | None = 0.0) -> DetachedHold:
        """Take it for ``ttl`` seconds.

        If the token holds it already, that hold is renewed. Otherwise wait for other holders for up
        to ``wait`` seconds, or for ever if that is None.

        Raises NotAcquired if others hold it. Raises OutcomeUnknown if no reply came: take it again,
        with the same token.
        """
        seconds = check_ttl(ttl)
        patience = None if wait is None else check_wait(wait)
        start = self._database.runtime.now()
        try:
            self._refuse_as_writer("taken")
            hold = self._take(seconds, patience, start)
        except DBLockError as error:
            self._tell(outcome(error), start, error)
            raise
        self._tell(Kind.ACQUIRED, start)
        return hold

    def _take(self, ttl: float, wait: float | None, start: float) -> DetachedHold:
        attempt = self._attempt(ttl)
        answer = self._take_now(attempt)
        if isinstance(answer, Held):
            return self._hold(attempt, answer, start)
        if wait == 0 and self._asks_itself:
            raise self._refusal(attempt, answer)
        # The handle waits with a token that no client knows. So if the caller is cancelled, the
        # handle can release its hold even if the caller asks again with its own token.
        brief = plan(min(ttl, HAND_OVER), False)
        waiting = self._waiting(self._options._replace(plan=brief))
        left = None if wait is None else max(0.0, start + wait - self._database.runtime.now())
        refusal, attempt = waiting._acquire(left), self._attempt(ttl)
        if refusal is None:
            # A caller that is cancelled from here on leaves a hold, which expires.
            handed = self._database.runtime.finish(partial(waiting.hand_over, attempt))
            assert handed is not None  # `finish` waits for the result
            return self._hold(attempt, handed, start)
        # The name may have been refused because another call took it with the same token.
        answer = self._take_now(attempt)
        if isinstance(answer, Held):
            return self._hold(attempt, answer, start)
        raise refusal

    # --- what the subclasses define ----------------------------------------------------------

    #: Whether a free name is granted to the token itself, and not first to a handle for the token.
    _asks_itself: ClassVar[bool] = True

    @abstractmethod
    def _attempt(self, ttl: float) -> TokenAttempt: ...

    @abstractmethod
    def _waiting(self, options: LeaseOptions) -> WaitingForToken: ...

    def _take_now(self, attempt: TokenAttempt) -> Held | Refused:
        """Take it without waiting for another holder."""
        return self._database.run(by_token.take(attempt, look_first=True))

    def _refusal(self, attempt: TokenAttempt, refused: Refused) -> NotAcquired:
        return self._database.not_acquired(self.name, refused, 0.0)

    # --- inside ------------------------------------------------------------------------------

    def _exchange(self) -> Exchange:
        """Return the exchange of a try that does not wait, but settles a lost reply."""
        return self._database.exchange(self.name, wait=0.0)

    def _hold(self, attempt: TokenAttempt, held: Held, start: float) -> DetachedHold:
        expires_in = held.term.deadline - start
        return DetachedHold(attempt.request.name, held.fence, expires_in, attempt.repeated)

    def _refuse_as_writer(self, doing: str) -> None:
        if self._database.dialect.traits.one_writer:
            self._database.callers.refuse_as_writer(self.name, doing)


class DetachedLease(ByToken):
    """A lease by its token alone, made by :meth:`Locks.detached`.

    The token is the hold. Nothing in this process renews the lease, releases it, or remembers it.
    Any process that knows the token can renew and release it. After a lost reply call the method
    again: a token that has the name already gets the same hold, with the same fence.

    A renewal costs one round trip. A take and a release do so too, unless others hold the name or
    wait for it, or the token has it already. A shared lease costs a few more.
    """

    strategy = "lease"

    def __init__(
        self,
        database: Database,
        name: str,
        options: LeaseOptions,
        token: str,
        owner: str,
        *,
        guarded: bool = False,
    ) -> None:
        super().__init__(database, name, options, token, owner)
        self._proclaimed = Doubt()  # values without a reply
        #: A transaction that is guarded with the hold may be open.
        self._guarded = guarded

    def _attempt(self, ttl: float) -> TokenAttempt:
        # Most names have a row. The statement for names without a row would report a hold that the
        # token has already as a new one.
        request = LeaseRequest(self.name, self.token, self.owner, ttl, known=True)
        return TokenAttempt(self._exchange(), request)

    def _waiting(self, options: LeaseOptions) -> WaitingForToken:
        return WaitingLease(self._database, self.name, options)

    def _take_now(self, attempt: TokenAttempt) -> Held | Refused:
        names = self._database.contenders.names
        taking = by_token.take(attempt, look_first=names.taken(self.name))
        answer = self._database.run(taking)
        if isinstance(answer, Held):
            names.note(self.name, answer.contended, self._database.runtime.now())
        else:
            names.note_refusal(self.name)
        return answer

    @property
    def _proof(self) -> str:
        """The token in the form in which the tables store it."""
        return self.token

    def renew(self, ttl: Seconds = 30.0) -> DetachedHold:
        """Let the lease expire ``ttl`` seconds from now.

        Raises LockLost if the token does not hold the name, and Unavailable if the database cannot
        be reached: then the lease may be as it was, or renewed.
        """
        seconds, start = check_ttl(ttl), self._database.runtime.now()
        self._refuse_as_writer("renewed")
        database = self._database
        held = database.run(
            by_token.renew(
                database.exchange(self.name, wait=database.timeouts.socket), self._proof, seconds
            )
        )
        expires_in = held.term.deadline - start
        return DetachedHold(self.name, held.fence, expires_in, repeated=True)

    def release(self) -> None:
        """Release the lease.

        Raises LockLost if the token does not hold the name, as after an earlier release.
        """
        self._refuse_as_writer("released")
        self._database.runtime.finish(self._release)

    def _release(self) -> None:
        exchange = self._database.exchange(self.name)
        self._database.run(by_token.release_by_token(exchange, self._proof, guarded=self._guarded))

    def proclaim(self, value: Any) -> None:
        """Publish ``value`` with the lease, as a leader does; see :meth:`Leadership.proclaim`.

        Two round trips. Observers of the name's election see the value until the lease is over.

        Raises LockLost if the token does not hold the name, Unavailable if nothing was written, and
        OutcomeUnknown if the reply was lost: proclaim the value again, with this handle. Through
        another handle an earlier value without a reply may arrive after a later one.
        """
        text, database = check_value(value), self._database
        self._refuse_as_writer("proclaimed for")
        exchange = database.exchange(self.name)
        held = database.run(by_token.find(exchange, self.token))
        database.run(
            election.proclaim(exchange, self.token, lambda: held, text, self._proclaimed),
            orphaned=self._proclaimed.sessions,
        )


class DetachedSharedLease(DetachedLease):
    """A share of a name by its token alone, made by :meth:`Locks.detached` with ``shared=True``.

    See :class:`DetachedLease`; :class:`SharedLease` describes the share.
    """

    strategy = "shared"
    _asks_itself = False

    def proclaim(self, value: Any) -> NoReturn:
        """Raise TypeError: a name that is shared has no leader."""
        raise TypeError(f"readers share {self.name!r}, so none of them is its leader")

    @property
    def _proof(self) -> str:
        return for_reader(self.token)

    def _take_now(self, attempt: TokenAttempt) -> Held | Refused:
        return ByToken._take_now(self, attempt)

    def _attempt(self, ttl: float) -> TokenSharedAttempt:
        request = LeaseRequest(self.name, self._proof, self.owner, ttl, known=True, shares=True)
        return TokenSharedAttempt(self._exchange(), request)

    def _waiting(self, options: LeaseOptions) -> WaitingForToken:
        return WaitingSharedLease(self._database, self.name, options)


class DetachedSemaphore(ByToken):
    """A semaphore whose slots are taken by token, made by :meth:`Locks.detached_semaphore`.

    A slot is a lease. Renew and release it by its name and the token::

        slot = locks.detached_semaphore("api", 3, token).take(ttl=60)
        locks.detached(slot.name, token).renew(ttl=60)

    Two calls at the very same time with one token may take two slots; then one of them expires.
    """

    strategy = "semaphore"

    def __init__(
        self,
        database: Database,
        name: str,
        options: LeaseOptions,
        token: str,
        owner: str,
        limit: int,
    ) -> None:
        super().__init__(database, name, options, token, owner)
        self.limit = limit

    def _attempt(self, ttl: float) -> TokenSlotAttempt:
        return TokenSlotAttempt(
            self._exchange(),
            LeaseRequest(self.name, self.token, self.owner, ttl),
            name=self.name,
            limit=self.limit,
            first=int(self._database.runtime.random() * self.limit),
        )

    def _waiting(self, options: LeaseOptions) -> WaitingSemaphore:
        waiting = WaitingLease(self._database, self.name, options)
        return WaitingSemaphore(self._database, waiting, self.limit)

    def _refusal(self, attempt: TokenAttempt, refused: Refused) -> NotAcquired:
        assert isinstance(attempt, TokenSlotAttempt)
        return self._waiting(self._options)._refusal(refused, attempt, 0.0)
