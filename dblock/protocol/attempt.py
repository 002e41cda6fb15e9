"""Asking for a name, and settling what became of that.

::

    ask ── granted ─────────────────────────────────> Held
     ├── refused, or in the queue since ────────────> None; what is in the way is in `seen`
     └── no reply ── settle ── token there ─────────> Held
                      └── not there ────────────────> None
                      └── nobody answers ───────────> OutcomeUnknown
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ..errors import DBLockError, LockLost, OutcomeUnknown
from .deadline import Deadline
from .epoch import consult
from .faults import Fault, Trouble
from .leasing import Claim, Held, end_session, give_back, look_from
from .persisting import AWAY, PASSING, persist
from .renewing import Asked, confirm
from .state import LockRow, Passed, Place, Renewal
from .steps import Protocol, Query, Reply, Sleep
from .term import MARGIN_SHARE, Term
from .troubles import explain

if TYPE_CHECKING:
    from ..dialects import Dialect

NOWHERE = Place(None, free=False)
#: Asks once, in whatever way.
Ask = Callable[[], Protocol[Reply]]


class Seen(NamedTuple):
    """What a name was like when that was asked, ``at`` a moment of the holder's clock."""

    state: LockRow | None = None
    place: Place = NOWHERE
    at: float = 0.0


UNSEEN = Seen()


@dataclass(slots=True)
class Doubt:
    """Tries had no clear reply, and may have been granted or be so yet.

    ``sessions`` are what ends those that the tries were sent on. Where one could not be ended, the
    name is ``haunted``: its try may arrive at any time.
    """

    sessions: list[Query] = field(default_factory=list)
    haunted: bool = False


@dataclass(slots=True)
class Attempt:
    """How far one acquire has come. All it asks carries one token: whichever try arrived is it."""

    dialect: Dialect
    claim: Claim
    deadline: Deadline
    seen: Seen = UNSEEN
    server: str | None = None
    doubt: Doubt | None = None
    #: How often the connection broke.
    cuts: int = 0
    #: What to tell of the last try, where it was the server that gave it up.
    timed_out: DBLockError | None = None
    #: When anything at all may be granted; None while that was not asked.
    opens: float | None = None
    #: Somebody else was in the way.
    contended: bool = False

    @property
    def closed(self) -> float:
        """For how long nothing at all is granted."""
        return 0.0 if self.opens is None else max(0.0, self.opens - self.deadline.now)

    @property
    def mine(self) -> bool:
        """Whether the name was seen to have this token."""
        return self.seen.state is not None and self.seen.state.token == self.claim.token

    # --- asking ------------------------------------------------------------------------------

    def run(self, ticket: str | None, ask: Ask | None = None) -> Protocol[Held | None]:
        """Ask once, by ``ask`` or in a transaction of its own, and settle what became of it.

        With a ticket a name that is not free is queued for.
        """
        first = self.cuts == 0
        held = yield from self._run(ticket, ask)
        free = self.seen.state is None or not self.seen.state.held
        if held is None and first and self.cuts and free:
            # A connection that had died while idle is no reason to be refused.
            held = yield from self._run(ticket, ask)
        return held

    def _run(self, ticket: str | None, ask: Ask | None) -> Protocol[Held | None]:
        refused, held = yield from self._once(ticket, ask)
        if refused and self._unexplained(ticket) and (yield from self._mend()):
            _, held = yield from self._once(ticket, ask)
        if held is None or not held.term.over(self.deadline.now):
            return held
        # The reply took longer than the lease is good for.
        yield from give_back(self.dialect, self.claim, self.deadline.now)
        yield from self.look(ticket)
        return None

    def _once(self, ticket: str | None, ask: Ask | None) -> Protocol[tuple[bool, Held | None]]:
        """Return whether the server refused it, and the hold."""
        self.timed_out, refused = None, False
        try:
            reply = yield from self.grant(ticket) if ask is None else ask()
        except Trouble as trouble:
            self._take_doubt(trouble)
        else:
            self._note(reply)
            grant = self.dialect.granted(reply, self.claim.token)
            if grant is not None and grant.remaining > 0:
                term = self._term(grant.remaining, reply.sent)
                return False, Held(grant.fence, term, reply.server, self.contended)
            refused, stands = True, self.dialect.stands(reply)
            self.contended = self.contended or stands is None or not stands[1].free
            if stands is not None and self.doubt is None:
                self.seen = Seen(*stands, reply.sent)
                if self.seen.place.free:  # since it became so in between, nobody will tell
                    return (yield from self._once(ticket, ask))
                return False, None
        yield from self.look(ticket)
        return refused, (yield from self._found())

    def grant(self, ticket: str | None) -> Protocol[Reply]:
        """Run the statement that takes the name, or lets the ticket stand in its queue."""
        query = self.statement(ticket)
        deadline = self.deadline
        return (yield from persist(query, deadline.reach, deadline.now, AWAY - {_BROKEN}))

    def statement(self, ticket: str | None) -> Query:
        """Return what to ask: who does not stand in the queue yet has to join, if it can."""
        claim, place = self.claim, self.seen.place
        asked = claim.name, claim.token, claim.owner, claim.ttl
        if ticket is None:
            return self.dialect.grant(*asked)
        queued = place.before is not None and ticket in claim.tickets
        if self.dialect.calls and (queued or place.free):
            return self.dialect.take(*asked)
        claim.queued(ticket)
        return self.dialect.join(*asked, ticket)

    def believe(self, passed: Passed, ticket: str | None) -> Protocol[Held | None]:
        """Return the hold that a release has passed on, as its message says, or the table.

        Its term began when it was granted: so much later, by the database's clock, than the place
        in the queue was seen; by ours that is up to the margin's share less. A message that is too
        old to act on, or that comes a second time, is not believed: the table is asked.
        """
        self.contended, seen = True, self.seen
        fence = 0 if seen.state is None else seen.state.fence
        if seen.place.clock is not None and passed.fence > fence and self.doubt is None:
            since = passed.granted - seen.place.clock
            start = min(self.deadline.now, seen.at + since - abs(since) * MARGIN_SHARE)
            held = Held(passed.fence, Term(start, passed.ttl), self.server, contended=True)
            if self.deadline.now < start + passed.ttl / 2:
                return held if self.claim.short else (yield from self._confirm(held))
        yield from self.look(ticket)
        return (yield from self._found())

    # --- settling ----------------------------------------------------------------------------

    def _take_doubt(self, trouble: Trouble) -> None:
        """Take down a try without a clear reply. Raises what no other try can mend."""
        broken = trouble.fault is _BROKEN
        if broken:
            self.cuts += 1
            self.deadline.settling = True
        if trouble.fault is Fault.CANCELED:
            self.timed_out = explain(self.dialect, trouble, self.claim.name)
            self.timed_out.__cause__ = trouble.__cause__
        # Where a failure does not undo all of a statement it may have been the part after the
        # grant's commit that the server gave up.
        parts = trouble.fault is Fault.CANCELED and not self.dialect.failure_aborts
        if broken or parts:
            self.doubt = self.doubt or Doubt()
            if trouble.end is not None:
                self.doubt.sessions.append(trouble.end)
            elif broken:
                self.doubt.haunted = True
        elif trouble.fault not in PASSING:
            if self.doubt is None:
                raise explain(self.dialect, trouble, self.claim.name) from trouble.__cause__
            raise self._unknown(explain(self.dialect, trouble)) from trouble.__cause__

    def look(self, ticket: str | None) -> Protocol[None]:
        """Look at the name; whoever cannot, and does not know what became of a try, says so.

        What is not there may still come, as long as the session it was sent on is alive. So that
        is ended first, and then what is there settles it.
        """
        deadline, doubt = self.deadline, self.doubt
        try:
            while doubt is not None and doubt.sessions:
                ended, deadline.now = yield from end_session(
                    self.dialect, doubt.sessions[-1], deadline.reach, deadline.now
                )
                doubt.haunted = doubt.haunted or not ended
                doubt.sessions.pop()
            state, reply = yield from look_from(
                self.dialect, self.claim.name, deadline.reach, deadline.now, self._look(ticket)
            )
        except DBLockError as error:
            if doubt is None:
                raise
            raise self._unknown(error) from error
        self._note(reply)
        self.seen = Seen(state, self.dialect.place(reply), reply.sent)
        if doubt is not None and not doubt.haunted:
            self.doubt = None

    def _look(self, ticket: str | None) -> Query:
        name, token = self.claim.name, self.claim.token
        if ticket is None:
            return self.dialect.look(name)
        return self.dialect.look_queued(name, token, ticket)

    def _found(self) -> Protocol[Held | None]:
        """Return the hold that the last look has shown, if it has."""
        state = self.seen.state
        if state is None or not state.held or not self.mine:
            return None
        assert state.remaining is not None
        term = self._term(state.remaining, self.seen.at)
        held = Held(state.fence, term, self.server, self.contended)
        return (yield from self._confirm(held))

    def _confirm(self, held: Held) -> Protocol[Held | None]:
        """Return the hold that was found, once it is known to outlive this server.

        Where no reply was lost it was passed on, and can be given back.
        """
        asked = Asked(Renewal(self.claim.name, self.claim.token, self.claim.ttl), held)
        deadline = self.deadline
        outcome = yield from confirm(self.dialect, asked, deadline.reach, deadline.now)
        deadline.now = (yield Sleep(0)).now  # the answer may have come when the term was over
        if isinstance(outcome, Term):
            if not outcome.over(deadline.now):
                return replace(held, term=outcome)
        elif not isinstance(outcome, LockLost) and self.cuts:
            raise self._unknown(outcome) from outcome.__cause__
        yield from give_back(self.dialect, self.claim, self.deadline.now)
        yield from self.look(None)
        return None

    def _term(self, remaining: float, sent: float) -> Term:
        """Return the term of a hold, whichever try was granted it.

        So much of it remained some time after that was asked: its end is no later than the expiry.
        """
        return Term(sent - max(0.0, self.claim.ttl - remaining), self.claim.ttl)

    def _note(self, reply: Reply) -> None:
        self.deadline.now, self.server = reply.now, reply.server

    def _unknown(self, error: DBLockError) -> OutcomeUnknown:
        """Return what to tell of ``error`` when the reply to a try before it never came."""
        name, ttl = self.claim.name, self.claim.ttl
        return OutcomeUnknown(
            f"the reply to acquiring {name!r} never came, and what became of it could not be "
            f"found out since: {error}. It may be held for up to {ttl:g} s; nothing was started",
            name=name,
        )

    # --- the witness -------------------------------------------------------------------------

    def _unexplained(self, ticket: str | None) -> bool:
        """Whether a try was refused that might have got the name, or at least have joined."""
        place = self.seen.place
        out = ticket is not None and place.before is None and not self.mine
        return self.dialect.has_witness and (place.free or out)

    def _mend(self) -> Protocol[bool]:
        """Let the witness be mended if that refused a try; return whether to try again at once.

        Others may have mended it since then, so the first time it is taken for the reason.
        """
        deadline = self.deadline
        try:
            consulted = yield from consult(
                self.dialect, self.claim.ttl, deadline.reach, deadline.now
            )
        except Trouble as trouble:
            error = explain(self.dialect, trouble, self.claim.name, harmless=True)
            raise (self._unknown(error) if self.doubt else error) from trouble.__cause__
        again = consulted.mended or self.opens is None
        deadline.now = consulted.now
        self.opens = consulted.now + consulted.witness.pause
        return again and not self.closed


_BROKEN = Fault.DISCONNECTED
