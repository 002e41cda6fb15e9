"""Asking for a name, and settling the outcome.

::

    ask ── granted ─────────────────────────────────> Held
     ├── refused, or has joined the queue ──────────> None; `seen` has the name's state
     ├── refused, and joins the queue next ─────────> None; the name was not read
     └── no reply ── settle ── the token holds it ──> Held
                      └── it does not ──────────────> None
                      └── no answer ────────────────> OutcomeUnknown
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, NamedTuple, TypeVar

from ..errors import DBLockError, LockLost, OutcomeUnknown
from .commands import Command, Grant, Join, LookQueued, Take
from .doubt import Doubt, may_be_executed
from .epoch import consult
from .exchange import Exchange
from .faults import Fault, StatementError
from .inspect import look_from
from .lease import Held, LeaseRequest
from .release import give_back
from .renew import Asked, confirm
from .retry import AWAY, PASSING, UNREACHED, retry_after
from .state import Granted, LockRow, Passed, Queued, QueuePosition, Renewal
from .steps import Execute, Procedure, Reply
from .term import MARGIN_SHARE, Term

T = TypeVar("T")

# The server did not execute the statement; another connection may.
_ELSEWHERE = AWAY - {Fault.DISCONNECTED}
# No server executed the statement.
_NOT_EXECUTED = UNREACHED - {Fault.DISCONNECTED}
NOWHERE = QueuePosition(None, free=False)
#: The outcome of a try: a hold, the ticket's position, or neither.
Outcome = Granted | Queued | None
#: Makes one try, on a connection of the function's choice.
Ask = Callable[[], Procedure[Reply[Outcome]]]


class Seen(NamedTuple):
    """The last known state of a name and of the ticket's position.

    The statement that read them was sent ``at`` this time by the holder's clock.
    """

    state: LockRow | None = None
    position: QueuePosition = NOWHERE
    at: float = 0.0


UNSEEN = Seen()


@dataclass(slots=True)
class Attempt:
    """The progress of one acquire.

    Every try carries the same token, so whichever try the server executed is this attempt's.
    """

    #: Queue positions beyond this one poll at the same interval, if the database cannot notify.
    in_step = inf

    exchange: Exchange
    request: LeaseRequest
    seen: Seen = UNSEEN
    server: str | None = None
    doubt: Doubt | None = None
    #: How many times the connection broke.
    cuts: int = 0
    #: The error for the last try, if the server canceled it or this side gave up on it.
    timed_out: DBLockError | None = None
    #: The end of the pause after a crash or a failover, by the holder's clock; None if the witness
    #: was not read.
    opens: float | None = None
    #: Another holder or waiter was in the way.
    contended: bool = False
    #: What the caller does after a refusal: ``read`` the name, or ``join`` its queue, whose reply
    #: tells the name's state too. ``joining``: it was refused, and has not yet joined or read.
    after_refusal: Literal["read", "join", "joining"] = "read"

    @property
    def yields(self) -> bool:
        """Whether sessions that wait in the server go first; the queue does not show them."""
        return False

    @property
    def closed(self) -> float:
        """Seconds for which the database still grants nothing to any caller."""
        return 0.0 if self.opens is None else max(0.0, self.opens - self.exchange.now)

    @property
    def mine(self) -> bool:
        """Whether this attempt's token was seen to hold the name."""
        return self.seen.state is not None and self.request.token in self.seen.state.members

    @property
    def promising(self) -> bool:
        """Whether a try may succeed, by the last known state."""
        return self.seen.position.free or self.mine

    @property
    def _missing(self) -> bool:
        """Whether the name was seen to have no row."""
        return self.seen.state is None and self.seen is not UNSEEN

    @property
    def unsure(self) -> bool:
        """Whether the attempt may hold the name, or be granted it later, without knowing."""
        return self.doubt is not None or bool(self.request.unreturned)

    # --- asking ------------------------------------------------------------------------------

    def run(self, ticket: str | None, ask: Ask | None = None) -> Procedure[Held | None]:
        """Ask once, with ``ask`` or in a transaction of its own, and settle the outcome.

        With a ticket, the attempt joins the queue if the name is not free. A caller that is to join
        next comes back with a ticket; if it comes back without a ticket, the attempt completes the
        refused try by reading the name.
        """
        replaced = self.cuts > 0
        while True:
            refused, held = yield from self._once(ticket, ask)
            if refused and (yield from self._mend(ticket)):
                _, held = yield from self._once(ticket, ask)
            if held is not None:
                # Not `over`, and below not `send`: the Python calls of this path are counted.
                if self.exchange.now < held.term.deadline:
                    return held
                # The reply came so late that the lease's term is over.
                yield from self._give_back()
                yield from self.look(ticket)
            free = self.seen.state is None or not self.seen.state.held
            if replaced or not self.cuts or not free:
                return None
            # The connection may have died while it was idle: that must not refuse the caller.
            replaced = True

    def _once(self, ticket: str | None, ask: Ask | None) -> Procedure[tuple[bool, Held | None]]:
        """Make one try; return whether the server refused it, and the hold."""
        self.timed_out, refused = None, False
        joining = self.after_refusal == "joining"
        if joining:
            self.after_refusal = "read"
        if joining and ticket is None:  # it cannot join, so the refused try ends with a read
            return (yield from self._look_refused())
        tickets = len(self.request.tickets)
        try:
            if ask is None:
                command = self.statement(ticket)
                try:
                    reply = yield Execute(command)
                except StatementError as failure:
                    reach, now = self.exchange.reach, self.exchange.now
                    reply = yield from retry_after(failure, command, reach, now, _ELSEWHERE)
            else:
                reply = yield from ask()
        except StatementError as failure:
            if failure.fault in _NOT_EXECUTED:  # so no ticket has joined
                del self.request.tickets[tickets:]
            self._take_doubt(failure)
        else:
            outcome: Outcome = reply.answer
            self.exchange.now, self.server = reply.now, reply.server
            self.contended = self.contended or (joining and outcome is not None)
            if isinstance(outcome, Granted) and outcome.remaining > 0:
                self.request.name = outcome.name or self.request.name
                term = self._term(outcome.remaining, reply.sent)
                return False, Held(outcome.fence, term, reply.server, self.contended)
            refused = True
            if self.after_refusal == "join" and ticket is None and self.doubt is None:
                self.after_refusal = "joining"
                return False, None
            if isinstance(outcome, Queued) and self.doubt is None:
                self.seen = Seen(*outcome, reply.sent)
                # The name became free between our two statements: no notification will come.
                if self.seen.position.free:
                    return (yield from self._once(ticket, ask))
                self.contended = True
                return False, None
        yield from self.look(ticket)
        self.contended = self.contended or (refused and not self._missing)
        return refused, (yield from self._found())

    def _look_refused(self) -> Procedure[tuple[bool, Held | None]]:
        """Complete a refused try: read the name, and return as :meth:`_once` does."""
        yield from self.look(None)
        self.contended = self.contended or not self._missing
        return True, (yield from self._found())

    def send(self, command: Command[T]) -> Procedure[Reply[T]]:
        """Run a try on a connection of its own; retry only while the database is not reached."""
        return self.exchange.ask(command, _ELSEWHERE)

    def statement(self, ticket: str | None) -> Command[Outcome]:
        """Return the statement for the next try. An attempt with a ticket joins the queue if it has
        not joined yet."""
        request, position = self.request, self.seen.position
        asked = request.name, request.token, request.owner, request.ttl
        if ticket is None or self._missing:
            known = request.known and not position.free
            return Grant(*asked, known)
        queued = position.ahead is not None and ticket in request.tickets
        if self.exchange.dialect.traits.can_notify and (queued or position.free):
            return Take(*asked)
        request.queued(ticket)
        return Join(*asked, ticket, self.yields)

    def believe(self, passed: Passed, ticket: str | None) -> Procedure[Held | None]:
        """Return the hold that a release has passed on, from its notification or from the table.

        The term began at the grant. The database's clock says how long that was after the attempt
        read its queue position. Our clock may run slower, by up to the margin's share, so that
        share is subtracted. The attempt does not act on a notification that is too old or that
        comes a second time: it reads the table.
        """
        self.contended, seen = True, self.seen
        fence = 0 if seen.state is None else seen.state.fence
        if seen.position.clock is not None and passed.fence > fence and self.doubt is None:
            since = passed.granted - seen.position.clock
            start = min(self.exchange.now, seen.at + since - abs(since) * MARGIN_SHARE)
            held = Held(passed.fence, Term(start, passed.ttl), self.server, contended=True)
            if self.exchange.now < start + passed.ttl / 2:
                return held if self.request.short else (yield from self._confirm(held))
        yield from self.look(ticket)
        return (yield from self._found())

    # --- settling ----------------------------------------------------------------------------

    def _take_doubt(self, failure: StatementError) -> None:
        """Record a try without a clear reply. Raises the errors that no other try can fix."""
        broken = failure.fault is Fault.DISCONNECTED
        if broken:
            self.cuts += 1
            self.exchange.settling = True
            self.opens = None  # another server may answer now, with a pause of its own
        if failure.fault is Fault.CANCELED or (broken and failure.timed_out):
            # It is told if the try is known by then to have changed nothing.
            self.timed_out = self.exchange.explain(failure, harmless=True)
            self.timed_out.__cause__ = failure.__cause__
        if may_be_executed(self.exchange, failure):
            self.doubt = self.doubt or Doubt()
            self.doubt.add(failure)
        elif failure.fault not in PASSING:
            raise self.told(self.exchange.explain(failure)) from failure.__cause__

    def look(self, ticket: str | None) -> Procedure[None]:
        """Read the name, and settle a try in doubt.

        A lost try may still be executed as long as its session is alive. So that session is ended
        first; then the row settles the outcome. Raises OutcomeUnknown if that fails while the
        outcome of a try is open.
        """
        doubt = self.doubt
        try:
            if doubt is not None:
                yield from doubt.end_sessions(self.exchange)
            yield from self._look(ticket)
        except DBLockError as error:
            if not self.unsure:
                raise
            raise self.unknown(error) from error
        if doubt is not None and not doubt.haunted:
            self.doubt = None

    def _look(self, ticket: str | None) -> Procedure[None]:
        """Read the name's row and the ticket's position."""
        reply: Reply[Any]
        if ticket is None:
            state, reply = yield from look_from(self.exchange)
            queued = None
        else:
            command = LookQueued(self.request.name, self.request.token, ticket)
            reply = yield from self.exchange.ask_or_explain(command)
            queued = reply.answer
            state = None if queued is None else queued.row
        free = state is None or not state.held
        self.seen = Seen(
            state, QueuePosition(None, free) if queued is None else queued.position, reply.sent
        )
        self.server = reply.server

    def _found(self) -> Procedure[Held | None]:
        """Return the hold, if the last known state shows one for this attempt's token."""
        state = self.seen.state
        if state is None or not state.held or not self.mine:
            return None
        assert state.remaining is not None
        term = self._term(state.remaining, self.seen.at)
        group = None if state.token == self.request.token else state.token
        held = Held(state.fence, term, self.server, self.contended, group)
        return (yield from self._confirm(held))

    def _confirm(self, held: Held) -> Procedure[Held | None]:
        """Return the hold that was found, once it is known to survive a failover.

        If no reply was lost, the hold was passed on to this waiter, and can be released.
        """
        token = held.group or self.request.token
        asked = Asked(Renewal(self.request.name, token, self.request.ttl), held)
        outcome = yield from confirm(self.exchange, asked)
        if isinstance(outcome, Term):
            if not outcome.over(self.exchange.now):  # the reply may come after the term's end
                return held._replace(term=outcome)
        elif not isinstance(outcome, LockLost) and self.cuts:
            raise self.unknown(outcome) from outcome.__cause__
        yield from self._give_back(None if isinstance(outcome, Term) else outcome)
        yield from self.look(None)
        return None

    def _give_back(self, why: DBLockError | None = None) -> Procedure[object]:
        """Release a hold that must not be used, and go on with another token.

        ``why`` is the reason that it was not renewed; None if the reply came too late.
        """
        return give_back(self.exchange, self.request)

    def _term(self, remaining: float, sent: float) -> Term:
        """Return the term of a hold, whichever try was granted it.

        The server computed ``remaining`` after the statement was sent. So a term that ends
        ``remaining`` seconds after ``sent`` ends no later than the expiry.
        """
        return Term(sent - max(0.0, self.request.ttl - remaining), self.request.ttl)

    def told(self, error: DBLockError) -> DBLockError:
        """Return the error to raise: OutcomeUnknown while an earlier try is in doubt."""
        return self.unknown(error) if self.unsure else error

    def unknown(self, error: DBLockError) -> OutcomeUnknown:
        """Return OutcomeUnknown for ``error``: the attempt may hold the name, or get it later."""
        name, ttl = self.request.name, self.request.ttl
        return OutcomeUnknown(
            f"dblock could not find out whether it was granted {name!r}, nor release that: "
            f"{error}. The name may be held for up to {ttl:g} s; nothing was started",
            name=name,
        )

    # --- why a try was refused ---------------------------------------------------------------

    def _mend(self, ticket: str | None) -> Procedure[bool]:
        """Fix what may have refused a try; return whether to try again at once."""
        if not self.exchange.dialect.traits.has_witness:
            return self.request.known and self.seen.position.free
        # The name was free, or the ticket should have joined: then the witness may have refused.
        position = self.seen.position
        out = ticket is not None and position.ahead is None and not self.mine
        return (position.free or out) and (yield from self._mend_witness())

    def _mend_witness(self) -> Procedure[bool]:
        """Repair the witness if it refused a try; return whether to try again at once.

        Another process may have repaired it since. So the first time this assumes that the witness
        was the reason, even if it is intact now.
        """
        try:
            consulted = yield from consult(self.exchange, self.request.ttl)
        except DBLockError as error:
            raise self.told(error) from error.__cause__
        again = consulted.mended or self.opens is None
        self.opens = consulted.opens
        return again and not self.closed
