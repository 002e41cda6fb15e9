"""Taking a lease, however long that takes.

::

    try ── granted ─────────────────────────────────> Held
     │ ├── refused ── wait: queueing, or looking ───> try
     │ └── no reply ── settle ── token there ───────> Held
     │                    │ └── not there ──────────> as refused
     │                    └── nobody answers ───────> OutcomeUnknown
     └── the deadline, or the policy stops ─────────> Refused

Where the database keeps a queue, in the name's row::

    Stand ── the first of this process ── join ── Await ── called ──────────> try
                                            ^       └── looked ── our turn ─> try
                                            └────────────┴── not in it any more

Where names have gates (:mod:`dblock.gate`) a try may begin with a wait there, in the server.

A release calls the first in the queue and nobody else, and keeps the name for it for a moment:
:attr:`.Dialect.grace`. Then the second may take it, a moment later the third, and so on; so a
waiter that has died, or cannot be called, stops nobody for long. Everybody looks now and then,
since a call can be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from ..errors import DBLockError, DeadlockDetected, LockLost, OutcomeUnknown
from .epoch import consult
from .faults import Fault, Trouble
from .leasing import Claim, Held, Refused, end_session, give_back, leave, look_from
from .persisting import AWAY, PASSING, UNDONE, persist
from .renewing import Asked, confirm
from .state import LockRow, Place, Renewal
from .steps import AtGate, Await, Protocol, Query, Reply, Sleep, Stand
from .term import Term
from .troubles import explain

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..policy import RetryPolicy
    from .registering import Waiter

# Between two looks of one who waits to be called: those further back look less often.
LOOK, LOOK_MORE, LOOK_MAX = 2.5, 0.5, 10.0

# Of the policy's sleep, for the first in a queue that calls nobody; the second sleeps twice that.
# And no more, in seconds, while the queue moves; twice that for each look that shows it does not.
HURRY, HURRY_MIN = 0.05, 0.001
# After so many seconds of looking everybody stands in the queue, so that nobody is left behind.
TIRED = 0.02

# How long to wait at a name's gate, in seconds, before queueing; and of the TTL.
GATE, GATE_SHARE = 0.25, 0.1

NOWHERE = Place(None, free=False)


def acquire(
    dialect: Dialect,
    claim: Claim,
    policy: RetryPolicy,
    *,
    fair: bool,
    wait: float | None,
    patience: float,
    waiter: Waiter,
    gated: bool = False,
    quick: bool = False,
) -> Protocol[Held | Refused]:
    """Take the lease, waiting up to ``wait`` seconds from the waiter's start.

    ``patience`` bounds how long an unreachable database is tried, and how long an attempt whose
    reply was lost is looked for. ``fair`` waits in the queue also where that calls nobody. All
    tries carry one token: whichever arrived, it is this hold.
    """
    start = waiter.start
    tries = _Tries(dialect, claim, policy, fair, wait, patience, waiter, start, start)
    gated = gated and policy.endless and not fair  # at a gate the order is a rough one
    tries.knocks = gated and quick
    tries.gated = gated and not dialect.calls  # who can be called waits there for a moment only
    try:
        held = yield from tries.take()
    except DeadlockDetected:
        yield from tries.give_up()
        raise
    except DBLockError:
        yield from tries.leave()
        raise
    if held is not None:
        return held
    yield from tries.give_up()
    if tries.timed_out is not None and tries.place.free:
        raise tries.timed_out
    return Refused(tries.state, tries.closed)


@dataclass(slots=True)
class _Tries:
    """How far one acquire has come."""

    dialect: Dialect
    claim: Claim
    policy: RetryPolicy
    fair: bool
    wait: float | None
    patience: float
    waiter: Waiter
    start: float
    now: float
    number: int = 0
    state: LockRow | None = None
    place: Place = NOWHERE
    #: Whether this is the first in its line, and what is called then.
    first: bool = True
    alarmed: bool = False
    ticket: str | None = None
    called: bool = False
    server: str | None = None
    #: When anything at all may be granted.
    opens: float = 0.0
    consulted: bool = False
    #: The last try was told that it did not get the name.
    refused: bool = False
    #: The connection broke in the last try; in any.
    cut_off: bool = False
    cut_off_once: bool = False
    #: What to tell of the last try, where it was the server that gave it up.
    timed_out: DBLockError | None = None
    #: A try had no clear reply, and may have been granted or be so yet.
    in_doubt: bool = False
    #: What ends the sessions that such tries were sent on.
    lost: list[Query] = field(default_factory=list)
    #: One of those could not be ended, so its try may arrive at any time.
    haunted: bool = False
    #: When it was last asked what ``state`` tells.
    looked: float = 0.0

    #: The next try is no more than the rest of the last: it joins the queue, or waits at the gate.
    joins: bool = False
    #: Somebody else was in the way so far.
    contended: bool = False
    #: Whether it waits at the name's gate rather than in the queue; whether the next try does, or
    #: the last one did in vain; and whether the gate is had.
    gated: bool = False
    knocks: bool = False
    knocked: bool = False
    passed: bool = False
    #: The name was free, and the gate had, and others came first: those in the queue.
    outranked: bool = False
    #: For how many looks the place in the queue has been the same.
    stuck: int = 0

    @property
    def left(self) -> float | None:
        return None if self.wait is None else self.start + self.wait - self.now

    @property
    def reach(self) -> float:
        """How long to try to get an answer at all."""
        if self.left is None or self.cut_off_once:  # the truth comes before the deadline
            return self.patience
        return max(0.0, min(self.patience, self.left))

    @property
    def closed(self) -> float:
        """For how long nothing at all is granted."""
        return max(0.0, self.opens - self.now)

    @property
    def seems_free(self) -> bool:
        return self.state is None or not self.state.held

    def take(self) -> Protocol[Held | None]:
        """Try until it is held, or the deadline or the policy ends that."""
        replaced = False
        if self.wait != 0 and not (yield from self.enter()):
            yield from self.look()
            return None
        while True:
            held = yield from self.once()
            if held is None and self.cut_off and self.seems_free and not replaced:
                replaced = True  # a connection that had died while idle is no reason to be refused
                continue
            if held is not None:
                if not held.term.over(self.now):
                    return held
                # The reply took longer than the lease is good for.
                yield from give_back(self.dialect, self.claim)
                yield from self.look()
            if not (yield from self.pause()):
                return None

    def once(self) -> Protocol[Held | None]:
        """Try once, and settle what became of it."""
        self.number += not self.joins
        self.joins = False
        held = yield from self._try()
        if held is None and self.unexplained and (yield from self._mend()):
            held = yield from self._try()
        return held

    def _try(self) -> Protocol[Held | None]:
        claim, self.cut_off, self.refused, self.timed_out = self.claim, False, False, None
        try:
            reply = yield from self._ask()
        except Trouble as trouble:
            self._doubt(trouble)
        else:
            self._note(reply)
            grant = self.dialect.granted(reply, claim.token)
            if grant is not None and grant.remaining > 0:
                term = self._term(grant.remaining, reply.sent)
                return Held(grant.fence, term, reply.server, self.contended)
            self.refused = self.contended = True
            self.outranked = self.outranked or (self.passed and self.place.free)
            stands = self.dialect.stands(reply)
            if stands is not None:
                claim.tickets[:-1] = []  # the last one has joined, in the place of any other
            if stands is not None and not self.in_doubt:
                self.state, self.place = stands
                if self.place.free:  # since it became so in between, nobody will call
                    return (yield from self._try())
                return None
        yield from self.look()
        state = self.state
        if state is None or not state.held or state.token != claim.token:
            return None
        assert state.remaining is not None
        held = Held(state.fence, self._term(state.remaining, self.looked), self.server)
        return (yield from self._confirm(held))

    def _term(self, remaining: float, sent: float) -> Term:
        """Return the term of a hold, whichever try was granted it.

        So much of it remained some time after that was asked: its end is no later than the expiry.
        """
        return Term(sent - max(0.0, self.claim.ttl - remaining), self.claim.ttl)

    def _confirm(self, held: Held) -> Protocol[Held | None]:
        """Return the hold that was found, once it is known to outlive this server."""
        asked = Asked(Renewal(self.claim.name, self.claim.token, self.claim.ttl), held)
        outcome = yield from confirm(self.dialect, asked, self.reach, self.now)
        self.now = (yield Sleep(0)).now  # the answer may have come when the term was over
        if isinstance(outcome, Term):
            return replace(held, term=outcome)
        if not isinstance(outcome, LockLost):
            raise self._unknown(outcome) from outcome.__cause__
        yield from give_back(self.dialect, self.claim)
        yield from self.look()
        return None

    def _ask(self) -> Protocol[Reply]:
        """Run the statement that takes the name, at its gate if that makes sense."""
        claim, ticket = self.claim, self.ticket
        asked = claim.name, claim.token, claim.owner, claim.ttl, ticket
        if self.knocks and self.called is self.dialect.calls:
            patience = yield from self._patience()
            try:
                reply = yield AtGate(self.dialect.knock(*asked, patience), first=True)
            except Trouble as trouble:
                if trouble.fault in (Fault.DISCONNECTED, Fault.CANCELED):
                    raise
                self.knocked = True
                self.gated = self.gated and trouble.fault in UNDONE  # else there is none to be had
                self.now = (yield Sleep(0)).now
            else:
                self.contended = self.contended or self.dialect.gate_was_held(reply)
                if self.dialect.calls:  # it may have taken the name, or the ticket is in the queue
                    return reply
                self.now, self.passed = reply.now, True
        self.knocks = False
        former = claim.tickets[0] if claim.tickets else None
        grant = self.dialect.grant(*asked, former)
        if not self.passed:
            return (yield from persist(grant, self.reach, self.now, AWAY - {Fault.DISCONNECTED}))
        try:
            return (yield AtGate(grant))
        except Trouble as trouble:
            self.passed = trouble.fault in UNDONE
            raise

    def _patience(self) -> Protocol[float]:
        """Return how long the next try may wait at the gate."""
        self.knocks = False
        self.now = yield from self.waiter.note(self.now)
        # Where the name is taken in the same statement its term begins before the wait.
        longest = min(GATE, self.claim.ttl * GATE_SHARE) if self.dialect.calls else LOOK
        patience = min(longest, self.dialect.timeouts.query / 2)
        if self.state is not None and not self.state.held:  # it is kept for who has the gate
            patience = min(patience, self.dialect.grace)
        elif self.state is not None and self.state.remaining is not None:
            # Who is stopped keeps the gate, but not the name.
            patience = min(patience, self.state.remaining)
        if self.left is not None:
            patience = max(0.0, min(patience, self.left))
        return self.waiter.piece(patience, self.now)

    def _doubt(self, trouble: Trouble) -> None:
        """Take down a try without a clear reply. Raises what no other try can mend."""
        self.cut_off = trouble.fault is Fault.DISCONNECTED
        self.cut_off_once = self.cut_off_once or self.cut_off
        if trouble.fault is Fault.CANCELED:
            self.timed_out = explain(self.dialect, trouble, self.claim.name)
            self.timed_out.__cause__ = trouble.__cause__
        # Where a failure does not undo all of a statement it may have been the part after the
        # grant's commit that the server gave up.
        parts = trouble.fault is Fault.CANCELED and not self.dialect.failure_aborts
        if self.cut_off or parts:
            self.in_doubt = True
            self.lost += [trouble.end] if trouble.end is not None else []
            self.haunted = self.haunted or (self.cut_off and trouble.end is None)
        elif trouble.fault not in PASSING:
            if not self.in_doubt:
                raise explain(self.dialect, trouble, self.claim.name) from trouble.__cause__
            raise self._unknown(explain(self.dialect, trouble)) from trouble.__cause__

    def look(self) -> Protocol[None]:
        """Look at the name; whoever cannot, and does not know what became of a try, says so.

        What is not there may still come, as long as the session it was sent on is alive. So that
        is ended first, and then what is there settles it.
        """
        try:
            while self.lost:
                ended, self.now = yield from end_session(
                    self.dialect, self.lost[-1], self.reach, self.now
                )
                self.haunted = self.haunted or not ended
                self.lost.pop()
            self.state, reply = yield from look_from(
                self.dialect, self.claim.name, self.reach, self.now, self.ticket
            )
        except DBLockError as error:
            if not self.in_doubt:
                raise
            raise self._unknown(error) from error
        self._note(reply)
        self.looked, self.in_doubt = reply.sent, self.haunted
        self.place = self.dialect.place(reply)

    @property
    def unexplained(self) -> bool:
        """Whether a try was refused that might have got the name, or at least have joined."""
        out = self.ticket is not None and self.place.before is None
        return self.refused and self.dialect.has_witness and (self.place.free or out)

    def _mend(self) -> Protocol[bool]:
        """Let the witness be mended if that refused a try; return whether to try again at once.

        Others may have mended it since then, so the first time it is taken for the reason.
        """
        try:
            consulted = yield from consult(self.dialect, self.claim.ttl, self.reach, self.now)
        except Trouble as trouble:
            error = explain(self.dialect, trouble, self.claim.name, harmless=True)
            raise (self._unknown(error) if self.in_doubt else error) from trouble.__cause__
        self.now = consulted.now
        self.opens = self.now + consulted.witness.pause
        again, self.consulted = consulted.mended or not self.consulted, True
        return again and not self.closed

    def _note(self, reply: Reply) -> None:
        self.now, self.server = reply.now, reply.server

    def _unknown(self, error: DBLockError) -> OutcomeUnknown:
        """Return what to tell of ``error`` when the reply to a try before it never came."""
        name, ttl = self.claim.name, self.claim.ttl
        return OutcomeUnknown(
            f"the reply to acquiring {name!r} never came, and what became of it could not be "
            f"found out since: {error}. It may be held for up to {ttl:g} s; nothing was started",
            name=name,
        )

    # --- between two tries -------------------------------------------------------------------

    def enter(self) -> Protocol[bool]:
        """Wait until nobody else of this process waits like this; False if it takes too long.

        Where this process is called already, the first try joins the queue.
        """
        if not self.policy.endless:  # its tries are counted, so they are made
            yield from self.stand(0.0)
            return True
        while not (yield from self.stand(self.left)):
            if not self.alarmed:
                return False
            yield from self.look()  # else one would be told after the other, each in its turn
        return True

    def pause(self) -> Protocol[bool]:
        """Wait until another try makes sense; False to give up."""
        while True:
            if self.left is None or self.left > 0:
                yield from self.stand(0.0)
            if not self.joins:
                self.knocks = self.joins = self._may_knock()
                if self.knocks:
                    return True
                share, most = self._hurry()
                sleep = self.policy.sleep_after(
                    self.claim.name,
                    self.number,
                    self.now - self.start,
                    self.left,
                    share=share,
                    most=most,
                )
                if sleep is None:
                    return False
                if (yield from self.rest(sleep)):
                    return True
                # Waiters look, which takes no lock, and try when the name seems free.
                before = self.place.before
                yield from self.look()
                self.stuck = self.stuck + 1 if self.place.before == before else 0
                mine = self.state is not None and self.state.token == self.claim.token
                self.joins = self.ticket is not None and self.place.before is None
                if self.place.free or mine:
                    return True
            if self.joins:
                return True
            self.number += 1

    def _may_knock(self) -> bool:
        """Whether the next try waits at the gate: not twice in vain."""
        over = self.left is not None and self.left <= 0
        again, self.knocked = self.knocked, False
        return self.gated and self.first and not (over or self.passed or again)

    def rest(self, sleep: float) -> Protocol[bool]:
        """Let ``sleep`` seconds pass, or as long as a call takes; return whether one came."""
        until = self.now + sleep
        if not self.first:
            yield from self.stand(sleep)
            sleep = max(0.0, until - self.now)
            if self.joins:
                return True
        if self.called and self.place.before is not None and not self.place.free:
            reply = yield from self.waiter.wait(Await, self._nap(sleep), self.now)
            self.now = reply.now
            return bool(reply.matched)
        # Where it is our turn and we were refused, a row lock is in the way: nobody calls then.
        if self.state is not None and self.state.held and self.state.remaining is not None:
            sleep = min(sleep, self.state.remaining)
        if self.closed:
            sleep = self.closed if self.left is None else min(self.left, self.closed)
        self.now = (yield from self.waiter.wait(Sleep, sleep, self.now)).now
        return False

    def _hurry(self) -> tuple[float, float]:
        """Return which share of the policy's sleep to sleep, and how many seconds at most.

        A free name is kept for the first in the queue for a moment only.
        """
        if self.place.before is None or self.place.free or self.called or not self.policy.endless:
            return 1.0, inf
        behind = 1 + self.place.before
        most = min(HURRY_MIN * 2 ** min(self.stuck, 10), self.dialect.grace / 2)
        return min(1.0, HURRY * behind) if self.fair else 1.0, most * behind

    def stand(self, seconds: float | None) -> Protocol[bool]:
        """Wait for the first place of those in this process who wait like this, for one name.

        Whoever has it gets a ticket, for the first time or a new one, and has to join with that.
        """
        # Behind a pooler the server is not known, and nobody can be called.
        server = self.server if self.dialect.calls else None
        line = self.claim.name, id(self.policy.wait), self.fair
        queues = self.outranked or not self.gated
        tired = self.now - self.start >= TIRED and self.policy.usual and queues
        look = tired or (self.fair and self.number > 0)
        stand = partial(Stand, line, server=server, look=look)
        reply = yield from self.waiter.wait(stand, seconds, self.now)
        self.now, self.first, self.alarmed = reply.now, bool(reply.rows), bool(reply.matched)
        self.ticket, self.called = reply.rows[0] if reply.rows else (None, False)
        if self.ticket is not None and self.ticket not in self.claim.tickets:
            self.claim.tickets.append(self.ticket)
            self.joins = True
        return self.first

    def give_up(self) -> Protocol[None]:
        yield from self.leave()
        if self.in_doubt:  # one that is still under way must not outlive this
            yield from give_back(self.dialect, self.claim)

    def leave(self) -> Protocol[None]:
        """Leave the queue, so that nobody is called who is not there."""
        yield from leave(self.dialect, self.claim, self.now)

    def _nap(self, sleep: float) -> float:
        """Return how long to wait for the call before looking: until it may be our turn anyway."""
        before = self.place.before or 0
        if self.policy.endless:
            look = min(LOOK + LOOK_MORE * before, LOOK_MAX)
            sleep = look + min(sleep, look)
            if self.state is not None and self.state.remaining is not None:
                # By then those before may have died, so all but the first look after a moment.
                places = before if self.state.remaining < 0 else min(before, 1)
                turn = self.state.remaining + places * self.dialect.grace
                sleep = min(sleep, max(0.001, turn))
        return sleep if self.left is None else max(0.0, min(sleep, self.left))
