"""A lease that no handle holds: whoever knows its token takes, renews and releases it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from .arguments import Seconds, check_ttl, check_wait
from .errors import DBLockError, LockLost, Unavailable
from .events import Kind, outcome, tell, wanted
from .lease import Lease
from .lease_options import LeaseOptions, plan
from .protocol import by_token, release
from .protocol.attach import Detached, exchange
from .protocol.by_token import TokenAttempt
from .protocol.deadline import Deadline
from .protocol.lease import Held, LeaseRequest

if TYPE_CHECKING:
    from .database import Database


@dataclass(frozen=True)
class DetachedHold:
    """A lease as it was taken or renewed by its token.

    ``name``
        the name that the token holds.
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


class DetachedLease:
    """A lease by its token alone, made by :meth:`Locks.detached`.

    The token is the hold. Nothing in this process renews the lease, releases it, or remembers it.
    Any process that knows the token can renew and release it. After a lost reply call the method
    again: a token that has the name already gets the same hold, with the same fence.

    ``token`` has to be new for each hold, and is secret. It is 32 hexadecimal digits; without one a
    random token is made. ``owner`` is a text that tells people who the holder is.
    """

    strategy = "lease"

    def __init__(self, database: Database, options: LeaseOptions, token: str, owner: str) -> None:
        self.name = options.name
        #: The secret that is the hold.
        self.token = token
        #: The text that tells people who the holder is.
        self.owner = owner
        self._database = database
        self._runtime = database.runtime
        self._options = options

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has connections, which you cannot send to another process: send the name "
            "and the token, and call locks.detached(name, token) there"
        )

    def take(self, ttl: Seconds = 30.0, wait: Seconds | None = 0.0) -> DetachedHold:
        """Take the lease for ``ttl`` seconds. One round trip if the name is free.

        If the token has the name already, its hold is renewed. While another holds the name, wait
        in its queue for up to ``wait`` seconds, or for ever if that is None.

        Raises NotAcquired if another holds the name. Raises OutcomeUnknown if no reply came: take
        it again, with the same token.
        """
        seconds = check_ttl(ttl)
        patience = None if wait is None else check_wait(wait)
        start = self._runtime.now()
        try:
            self._refuse_as_writer("taken")
            hold = self._take(seconds, patience, start)
        except DBLockError as error:
            self._tell(outcome(error), start, error)
            raise
        self._tell(Kind.ACQUIRED, start)
        return hold

    def _take(self, ttl: float, wait: float | None, start: float) -> DetachedHold:
        names = self._database.contenders.names
        attempt = self._attempt(ttl, start)
        taking = by_token.take(attempt, look_first=names.taken(self.name))
        answer = self._database.run(taking)
        if isinstance(answer, Held):
            names.note(self.name, answer.contended, self._runtime.now())
            return self._hold(answer, start, repeated=attempt.repeated)
        names.note_refusal(self.name)
        if wait == 0:
            raise self._database.not_acquired(self.name, answer, wait)
        # It waits with a token that nobody else knows. So what it gets can be given back if the
        # caller is cancelled, although the caller may have asked again with its own token.
        waiting = _WaitingLease(
            self._database, self._options._replace(plan=plan(ttl, False, None, None))
        )
        left = None if wait is None else max(0.0, start + wait - self._runtime.now())
        refused = waiting.try_within(left)
        if refused is not None:  # perhaps by the same token: another call with it came first
            answer = self._database.run(by_token.take(attempt, look_first=True))
            if isinstance(answer, Held):
                return self._hold(answer, start, repeated=attempt.repeated)
            raise refused
        # A caller that is cancelled from here on leaves a hold, which expires.
        held = self._runtime.finish(partial(waiting.hand_over, self._request(ttl)))
        assert held is not None  # it is waited for
        return self._hold(held, start, repeated=False)

    def renew(self, ttl: Seconds = 30.0) -> DetachedHold:
        """Let the lease expire ``ttl`` seconds from now. One round trip.

        Raises LockLost if the token does not hold the name, and Unavailable if the database cannot
        be reached: then the lease may be as it was, or renewed.
        """
        seconds, start = check_ttl(ttl), self._runtime.now()
        self._refuse_as_writer("renewed")
        held = self._database.run(
            by_token.renew(
                self._database.dialect,
                self.name,
                self.token,
                seconds,
                self._database.timeouts.socket,
                start,
            )
        )
        return self._hold(held, start, repeated=True)

    def release(self) -> None:
        """Release the lease. One round trip if nobody waits for it.

        Raises LockLost if the token does not hold the name, as after an earlier release.
        """
        start = self._runtime.now()
        self._refuse_as_writer("released")
        self._runtime.finish(partial(self._release, start))

    def _release(self, start: float) -> None:
        database = self._database
        database.run(
            release.release(
                database.dialect, self.name, self.token, None, database.timeouts.socket, start
            )
        )

    # --- inside ------------------------------------------------------------------------------

    def _request(self, ttl: float) -> LeaseRequest:
        # Most names have a row. The statement for those without one would take a hold that the
        # token has already for a new one.
        return LeaseRequest(self.name, self.token, self.owner, ttl, known=True)

    def _attempt(self, ttl: float, start: float) -> TokenAttempt:
        dialect = self._database.dialect
        deadline = Deadline(start, 0.0, dialect.timeouts.socket, start)
        return TokenAttempt(dialect, self._request(ttl), deadline)

    def _hold(self, held: Held, start: float, *, repeated: bool) -> DetachedHold:
        return DetachedHold(self.name, held.fence, held.term.deadline - start, repeated)

    def _refuse_as_writer(self, doing: str) -> None:
        if self._database.dialect.one_writer:
            self._database.callers.refuse_as_writer(self.name, doing)

    def _tell(self, kind: Kind, start: float, error: Exception | None = None) -> None:
        if wanted(kind):
            tell(kind, self.strategy, self.name, self._runtime.now() - start, error, again=False)


class _WaitingLease(Lease):
    """The lease that waits for a name in the stead of a detached one. No event tells of it."""

    def _tell(self, *event: Any, **how: Any) -> None:
        pass

    def hand_over(self, request: LeaseRequest) -> Held:
        """Let the hold go on with the token of a request."""
        database, hold = self._database, self._holds.get(ending=True)
        try:
            self._end(hold, request.ttl)
            detached = Detached(self.name, hold.token, hold.lease.fence)
            patience, now = database.dialect.timeouts.socket, self._runtime.now()
            held, now = database.run(exchange(database.dialect, detached, request, patience, now))
        except LockLost as loss:
            raise Unavailable(
                f"{self.name!r} was granted, and lost before dblock could tell that: {loss}. Take "
                "it again",
                name=self.name,
            ) from loss
        if held.term.over(now):
            raise by_token.late(self.name, request.ttl)
        return held
