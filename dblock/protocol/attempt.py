"""Asking for a name, and settling what became of that.

::

    ask ── granted ─────────────────────────────────> Held
     ├── refused, or in the queue since ────────────> None; what is in the way is in `seen`
     ├── refused, and joins the queue next ─────────> None; nothing is known of the name
     └── no reply ── settle ── token there ─────────> Held
                      └── not there ────────────────> None
                      └── nobody answers ───────────> OutcomeUnknown
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ..errors import DBLockError, LockLost, OutcomeUnknown
from .deadline import Deadline
from .doubt import Doubt
from .epoch import consult
from .explain import explain
from .faults import Fault, StatementError
from .inspect import look_from
from .lease import Held, LeaseRequest
from .release import give_back
from .renew import Asked, confirm
from .retry import AWAY, PASSING, retry, retry_or_raise
from .state import Granted, LockRow, Passed, Queued, QueuePosition, Renewal
from .steps import Procedure, Query, Reply, Sleep
from .term import MARGIN_SHARE, Term

if TYPE_CHECKING:
    from .statements import Statements

NOWHERE = QueuePosition(None, free=False)
#: A statement that comes to a hold, or to where the ticket stands since, or to neither.
Try = Query[Granted | None] | Query[Granted | Queued | None]
#: A try, and its reply.
Answer = tuple[Try, Reply]
#: Asks once, in whatever way.
Ask = Callable[[], Procedure[Answer]]


class Seen(NamedTuple):
    """What a name was like when that was asked, ``at`` a moment of the holder's clock."""

    state: LockRow | None = None
    position: QueuePosition = NOWHERE
    at: float = 0.0


UNSEEN = Seen()


@dataclass(slots=True)
class Attempt:
    """How far one acquire has come. All it asks carries one token: whichever try arrived is it."""

    #: From which place of the queue on one looks as seldom as the next, where nobody is called.
    in_step: ClassVar[float] = inf

    dialect: Statements
    request: LeaseRequest
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
    #: A caller that is refused joins the name's queue next. That tells as much as a look.
    joins_next: bool = False
    #: It was refused, and has neither joined nor looked since.
    unseen: bool = False

    @property
    def yields(self) -> bool:
        """Whether those come first who wait in the server, where the queue does not show them."""
        return False

    @property
    def closed(self) -> float:
        """For how long nothing at all is granted."""
        return 0.0 if self.opens is None else max(0.0, self.opens - self.deadline.now)

    @property
    def mine(self) -> bool:
        """Whether the name was seen to have this token."""
        return self.seen.state is not None and self.request.token in self.seen.state.members

    @property
    def promising(self) -> bool:
        """Whether the name was seen so that to ask may not be in vain."""
        return self.seen.position.free or self.mine

    @property
    def _missing(self) -> bool:
        """Whether the name was seen to have no row."""
        return self.seen.state is None and self.seen is not UNSEEN

    @property
    def unsure(self) -> bool:
        """Whether it may have the name, or get it yet, without knowing that."""
        return self.doubt is not None or bool(self.request.unreturned)

    # --- asking ------------------------------------------------------------------------------

    def run(self, ticket: str | None, ask: Ask | None = None) -> Procedure[Held | None]:
        """Ask once, by ``ask`` or in a transaction of its own, and settle what became of it.

        With a ticket a name that is not free is queued for. Who joins the queue next asks again
        with one, or goes on in the same try without.
        """
        replaced = self.cuts > 0
        while True:
            refused, held = yield from self._once(ticket, ask)
            if refused and (yield from self._mend(ticket)):
                _, held = yield from self._once(ticket, ask)
            if held is not None:
                if not held.term.over(self.deadline.now):
                    return held
                # The reply took longer than the lease is good for.
                yield from self._give_back()
                yield from self.look(ticket)
            free = self.seen.state is None or not self.seen.state.held
            if replaced or not self.cuts or not free:
                return None
            # A connection that had died while idle is no reason to be refused.
            replaced = True

    def _once(self, ticket: str | None, ask: Ask | None) -> Procedure[tuple[bool, Held | None]]:
        """Return whether the server refused it, and the hold."""
        self.timed_out, refused = None, False
        unseen, self.unseen = self.unseen, False
        if unseen and ticket is None:  # there is no ticket to join with, so the try ends as others
            return (yield from self._look_refused())
        tickets = len(self.request.tickets)
        try:
            if ask is None:
                query, deadline = self.statement(ticket), self.deadline
                reply = yield from retry(query, deadline.reach, deadline.now, _ELSEWHERE)
            else:
                query, reply = yield from ask()
        except StatementError as failure:
            if failure.fault in _ELSEWHERE:  # it has not joined
                del self.request.tickets[tickets:]
            self._take_doubt(failure)
        else:
            outcome = query.read(reply)
            self._note(reply)
            self.contended = self.contended or (unseen and outcome is not None)
            if isinstance(outcome, Granted) and outcome.remaining > 0:
                self.request.name = outcome.name or self.request.name
                term = self._term(outcome.remaining, reply.sent)
                return False, Held(outcome.fence, term, reply.server, self.contended)
            refused = True
            if self.joins_next and ticket is None and self.doubt is None:
                self.joins_next, self.unseen = False, True
                return False, None
            if isinstance(outcome, Queued) and self.doubt is None:
                self.seen = Seen(*outcome, reply.sent)
                if self.seen.position.free:  # since it became so in between, nobody will tell
                    return (yield from self._once(ticket, ask))
                self.contended = True
                return False, None
        yield from self.look(ticket)
        self.contended = self.contended or (refused and not self._missing)
        return refused, (yield from self._found())

    def _look_refused(self) -> Procedure[tuple[bool, Held | None]]:
        """Return the same after a look at the name that was refused."""
        yield from self.look(None)
        self.contended = self.contended or not self._missing
        return True, (yield from self._found())

    def reach(self, query: Query[Any]) -> Procedure[Reply]:
        """Run a try on a connection of its own, once the database is reached."""
        return retry(query, self.deadline.reach, self.deadline.now, _ELSEWHERE)

    def statement(self, ticket: str | None) -> Try:
        """Return what to ask: who does not stand in the queue yet has to join, if it can."""
        request, position = self.request, self.seen.position
        asked = request.name, request.token, request.owner, request.ttl
        if ticket is None or self._missing:
            if request.known and not position.free:
                return self.dialect.grant_known(*asked)
            return self.dialect.grant(*asked)
        queued = position.ahead is not None and ticket in request.tickets
        if self.dialect.can_notify and (queued or position.free):
            return self.dialect.take(*asked)
        request.queued(ticket)
        return self.dialect.join(*asked, ticket, yields=self.yields)

    def believe(self, passed: Passed, ticket: str | None) -> Procedure[Held | None]:
        """Return the hold that a release has passed on, as its message says, or the table.

        Its term began when it was granted: so much later, by the database's clock, than the place
        in the queue was seen; by ours that is up to the margin's share less. A message that is too
        old to act on, or that comes a second time, is not believed: the table is asked.
        """
        self.contended, seen = True, self.seen
        fence = 0 if seen.state is None else seen.state.fence
        if seen.position.clock is not None and passed.fence > fence and self.doubt is None:
            since = passed.granted - seen.position.clock
            start = min(self.deadline.now, seen.at + since - abs(since) * MARGIN_SHARE)
            held = Held(passed.fence, Term(start, passed.ttl), self.server, contended=True)
            if self.deadline.now < start + passed.ttl / 2:
                return held if self.request.short else (yield from self._confirm(held))
        yield from self.look(ticket)
        return (yield from self._found())

    # --- settling ----------------------------------------------------------------------------

    def _take_doubt(self, failure: StatementError) -> None:
        """Take down a try without a clear reply. Raises what no other try can mend."""
        broken = failure.fault is _BROKEN
        if broken:
            self.cuts += 1
            self.deadline.settling = True
            self.opens = None  # another server may answer now, with a pause of its own
        if failure.fault is Fault.CANCELED:
            self.timed_out = explain(self.dialect, failure, self.request.name)
            self.timed_out.__cause__ = failure.__cause__
        # Where a failure does not undo all of a statement it may have been the part after the
        # grant's commit that the server gave up.
        parts = failure.fault is Fault.CANCELED and not self.dialect.failure_aborts
        if broken or parts:
            self.doubt = self.doubt or Doubt()
            self.doubt.add(failure)
        elif failure.fault not in PASSING:
            error = explain(self.dialect, failure, self.request.name)
            raise self.told(error) from failure.__cause__

    def look(self, ticket: str | None) -> Procedure[None]:
        """Look at the name; whoever cannot, and does not know what became of a try, says so.

        What is not there may still come, as long as the session it was sent on is alive. So that
        is ended first, and then what is there settles it.
        """
        doubt = self.doubt
        try:
            if doubt is not None:
                yield from doubt.end_sessions(self.dialect, self.deadline)
            yield from self._look(ticket)
        except DBLockError as error:
            if not self.unsure:
                raise
            raise self.unknown(error) from error
        if doubt is not None and not doubt.haunted:
            self.doubt = None

    def _look(self, ticket: str | None) -> Procedure[None]:
        """See what the name is like, and where the ticket stands."""
        name, deadline = self.request.name, self.deadline
        if ticket is None:
            state, reply = yield from look_from(self.dialect, name, deadline.reach, deadline.now)
            queued = None
        else:
            query = self.dialect.look_queued(name, self.request.token, ticket)
            reply = yield from retry_or_raise(
                self.dialect, query, name, deadline.reach, deadline.now
            )
            queued = query.read(reply)
            state = None if queued is None else queued.row
        free = state is None or not state.held
        self.seen = Seen(
            state, QueuePosition(None, free) if queued is None else queued.position, reply.sent
        )
        self._note(reply)

    def _found(self) -> Procedure[Held | None]:
        """Return the hold that the last look has shown, if it has."""
        state = self.seen.state
        if state is None or not state.held or not self.mine:
            return None
        assert state.remaining is not None
        term = self._term(state.remaining, self.seen.at)
        group = None if state.token == self.request.token else state.token
        held = Held(state.fence, term, self.server, self.contended, group)
        return (yield from self._confirm(held))

    def _confirm(self, held: Held) -> Procedure[Held | None]:
        """Return the hold that was found, once it is known to outlive this server.

        Where no reply was lost it was passed on, and can be given back.
        """
        token = held.group or self.request.token
        asked = Asked(Renewal(self.request.name, token, self.request.ttl), held)
        deadline = self.deadline
        outcome = yield from confirm(self.dialect, asked, deadline.reach, deadline.now)
        deadline.now = (yield Sleep(0)).now  # the answer may have come when the term was over
        if isinstance(outcome, Term):
            if not outcome.over(deadline.now):
                return held._replace(term=outcome)
        elif not isinstance(outcome, LockLost) and self.cuts:
            raise self.unknown(outcome) from outcome.__cause__
        yield from self._give_back(None if isinstance(outcome, Term) else outcome)
        yield from self.look(None)
        return None

    def _give_back(self, why: DBLockError | None = None) -> Procedure[object]:
        """Release what must not be believed in, and go on with another token.

        ``why`` it was not renewed; None if the reply came too late.
        """
        return give_back(self.dialect, self.request, self.deadline.now)

    def _term(self, remaining: float, sent: float) -> Term:
        """Return the term of a hold, whichever try was granted it.

        So much of it remained some time after that was asked: its end is no later than the expiry.
        """
        return Term(sent - max(0.0, self.request.ttl - remaining), self.request.ttl)

    def _note(self, reply: Reply) -> None:
        self.deadline.now, self.server = reply.now, reply.server

    def told(self, error: DBLockError) -> DBLockError:
        """Return what to tell of ``error``: nobody knows, where a try before it is in doubt."""
        return self.unknown(error) if self.unsure else error

    def unknown(self, error: DBLockError) -> OutcomeUnknown:
        """Return what to tell of ``error`` where it may have the name, or get it yet."""
        name, ttl = self.request.name, self.request.ttl
        return OutcomeUnknown(
            f"dblock could not find out whether it was granted {name!r}, nor release that: "
            f"{error}. The name may be held for up to {ttl:g} s; nothing was started",
            name=name,
        )

    # --- what may have refused a try ---------------------------------------------------------

    def _mend(self, ticket: str | None) -> Procedure[bool]:
        """Mend what may have refused a try; return whether to try again at once."""
        if not self.dialect.has_witness:
            return self.request.known and self.seen.position.free
        # Whether it might have got the name, or at least have joined.
        position = self.seen.position
        out = ticket is not None and position.ahead is None and not self.mine
        return (position.free or out) and (yield from self._mend_witness())

    def _mend_witness(self) -> Procedure[bool]:
        """Let the witness be mended if that refused a try.

        Others may have mended it since then, so the first time it is taken for the reason.
        """
        deadline = self.deadline
        try:
            consulted = yield from consult(
                self.dialect, self.request.ttl, deadline.reach, deadline.now
            )
        except StatementError as failure:
            error = explain(self.dialect, failure, self.request.name, harmless=True)
            raise self.told(error) from failure.__cause__
        again = consulted.mended or self.opens is None
        deadline.now = consulted.now
        self.opens = consulted.opens
        return again and not self.closed


_BROKEN = Fault.DISCONNECTED
_ELSEWHERE = AWAY - {_BROKEN}
