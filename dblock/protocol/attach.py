"""Attaching a hold that another process has detached: the same fence, under a new token.

::

    attach ── executed ──────────────────────────────────────> Held
      │
      └── refused, or no reply ── read ── under our token ──── renew it ──> Held
            │                      ├── over, or another's ──> LockLost
            └── under the old token, ┘
                unexpired: ask again

The second process that attaches finds another token. So a hold goes on in one process only, and the
process that detached it can neither renew nor release it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import DBLockError, LockLost, OutcomeUnknown, Unavailable
from .commands import Attach
from .doubt import Doubt, may_be_executed
from .epoch import consult, ended
from .exchange import Exchange
from .faults import Fault, StatementError
from .inspect import attached, expired, followed, look_from
from .lease import Held, LeaseRequest
from .release import give_back
from .renew import Asked, confirm
from .retry import AGAIN, PAUSE
from .state import LockRow, Renewal
from .steps import Execute, Procedure, Reply, Sleep
from .term import Term


@dataclass(frozen=True, slots=True)
class Detached:
    """A detached hold, as its text describes it."""

    name: str
    token: str = field(repr=False)
    fence: int


def attach(exchange: Exchange, detached: Detached, request: LeaseRequest) -> Procedure[Held]:
    """Attach a hold under the token of ``request``. Raises LockLost when the hold is over."""
    held = yield from move(exchange, detached, request)
    if held.term.over(exchange.now):
        yield from give_back(exchange, request)
        raise expired(detached.name, "before dblock learned that it is attached")
    return held


def move(exchange: Exchange, detached: Detached, request: LeaseRequest) -> Procedure[Held]:
    """Move a hold to the token of ``request``; return the hold, whose term may be over.

    This waits until the deadline for transactions that have the row locked or have a guard. All
    tries carry the same new token, and only one of them can find the old token, so they can be
    repeated.
    """
    attaching = _Attaching(exchange, detached, request)
    while True:
        failure: StatementError | None = None
        try:
            held = yield from attaching.ask()
        except StatementError as caught:
            failure, exchange.now = caught, caught.now
            attaching.take_doubt(caught)
            if caught.fault not in AGAIN:
                raise attaching.told(exchange.explain(caught)) from caught.__cause__
            held = None
        if held is None:
            try:
                held, again = yield from attaching.look()
            except LockLost:
                raise
            except DBLockError as error:
                raise attaching.told(error) from error
        if held is not None:
            return held
        if exchange.over:
            raise attaching.told(_why_not(exchange, detached.name, failure)) from failure
        if not again:
            exchange.now = (yield Sleep(PAUSE)).now


@dataclass(slots=True)
class _Attaching:
    """The progress of one attaching."""

    exchange: Exchange
    detached: Detached
    request: LeaseRequest
    doubt: Doubt | None = None

    def ask(self) -> Procedure[Held | None]:
        """Make one try; None when the server refused it."""
        request = self.request
        command = Attach(
            request.name, self.detached.token, request.token, request.owner, request.ttl
        )
        reply = yield Execute(command)
        self.exchange.now = reply.now
        fence = reply.answer
        if fence is None:
            return None
        return Held(fence, Term(reply.sent, request.ttl), reply.server)

    def take_doubt(self, failure: StatementError) -> None:
        """Record a try that the server may have executed, or may still execute."""
        if may_be_executed(self.exchange, failure):
            self.doubt = self.doubt or Doubt()
            self.doubt.add(failure)

    def look(self) -> Procedure[tuple[Held | None, bool]]:
        """Read the name; return the hold if it has our token, and whether to ask again at once.

        Raises LockLost when the hold is over, or another process has attached it.
        """
        doubt = self.doubt
        if doubt is not None:
            yield from doubt.end_sessions(self.exchange)
        state, reply = yield from look_from(self.exchange)
        if state is not None and state.token == self.request.token:
            self.doubt = doubt or Doubt()  # until it is known to survive a failover
            return (yield from self._confirm(state, reply)), False
        mended = yield from self._consult()
        loss = _loss_of(state, self.detached)
        if loss is not None:
            raise loss
        if doubt is not None and not doubt.haunted:
            self.doubt = None
        return None, mended

    def _confirm(self, state: LockRow, reply: Reply[list[LockRow]]) -> Procedure[Held]:
        """Return the hold that was found, once it is known to survive a failover."""
        request = self.request
        if not state.held or state.remaining is None:
            raise expired(request.name, "before dblock learned that it is attached")
        term = Term(reply.sent - max(0.0, request.ttl - state.remaining), request.ttl)
        held = Held(state.fence, term, reply.server)
        asked = Asked(Renewal(request.name, request.token, request.ttl), held)
        outcome = yield from confirm(self.exchange, asked)
        if isinstance(outcome, Term):
            return held._replace(term=outcome)
        raise outcome

    def _consult(self) -> Procedure[bool]:
        """Read the witness; return whether it had refused the try, and is repaired. Raises LockLost
        if the hold's epoch is over."""
        if not self.exchange.dialect.traits.has_witness:
            return False
        consulted = yield from consult(self.exchange, self.request.ttl)
        loss = ended(self.request.name, self.detached.fence, consulted.witness)
        if loss is not None:
            raise loss
        return consulted.mended

    def told(self, error: DBLockError) -> DBLockError:
        """Return the error to raise: OutcomeUnknown while an earlier try is in doubt."""
        if self.doubt is None:
            return error
        name, ttl = self.request.name, self.request.ttl
        return OutcomeUnknown(
            f"the reply to attaching the hold of {name!r} was lost, and dblock could not find out "
            f"whether it succeeded: {error}. The name may be held for up to {ttl:g} s; nothing "
            "was started",
            name=name,
        )


def _loss_of(state: LockRow | None, detached: Detached) -> LockLost | None:
    """Return why a hold cannot be attached, from the state of its name; None if it can."""
    name, fence = detached.name, detached.fence
    if state is None or state.fence < fence:
        return LockLost(
            f"the database knows of no hold of {name!r} with the fence {fence}: it is over, was "
            "detached in another database, or its text has been cut",
            name=name,
            reason="unknown",
        )
    if state.fence > fence:
        return LockLost(
            f"the hold of {name!r} is over: it expired, or was released where it was attached; "
            f"{followed(state, fence)}",
            name=name,
            reason="taken over",
        )
    if state.token is None:
        return LockLost(
            f"the hold of {name!r} is over: it was released where it was attached, or by force",
            name=name,
            reason="released",
        )
    if state.token != detached.token:
        return attached(state)
    return None if state.held else expired(name, "before it was attached")


def _why_not(exchange: Exchange, name: str, failure: StatementError | None) -> DBLockError:
    if failure is not None and failure.fault is not Fault.BUSY:
        return exchange.explain(failure, harmless=True)  # the row shows no change
    return Unavailable(
        f"the hold of {name!r} could not be attached, because its row is in use: a transaction "
        "that is guarded with it may be open yet. Nothing has changed: try again",
        name=name,
    )
