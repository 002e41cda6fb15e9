"""Looking at a lease, proving it and giving it back.

:mod:`.acquiring` takes it, :mod:`.renewing` keeps it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from ..errors import Conflict, DBLockError, LockLost, Unavailable
from ..printable import printable
from .epoch import consult, ended, failed_over
from .faults import Fault, Trouble
from .persisting import AWAY, PASSING, PAUSE, insist, persist
from .state import LockRow, LockState, WaiterState
from .steps import AtGate, Disown, Protocol, Query, Reply, Run, RunHeld, Sleep
from .term import Term
from .troubles import explain, transaction_broken

if TYPE_CHECKING:
    from .statements import Statements

# How long to try to leave the queue, or to give back, where others are at the row, in seconds.
LEAVING = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """The lease was granted."""

    fence: int
    term: Term
    #: The server that granted it, where it is known.
    server: str | None = None
    #: Somebody else was in the way.
    contended: bool = False

    def elsewhere(self, server: str | None) -> bool:
        """Whether a reply of ``server`` is that of another server than granted it."""
        return None not in (self.server, server) and self.server != server


@dataclass(frozen=True, slots=True)
class Refused:
    """It was not, within the wait. ``state`` is what was last seen of the name.

    ``pause`` is for how many seconds nothing at all is granted, after a crash or a failover.
    """

    state: LockRow | None
    pause: float = 0.0


@dataclass(slots=True)
class Claim:
    """What an acquire asks for. The token is made before the attempt; it alone proves ownership."""

    name: str
    token: str = field(repr=False)
    owner: str
    ttl: float
    #: Whether it may begin with a term that is shorter than that, since it is renewed soon.
    short: bool = False
    #: What it may stand in the queue with, the last one first of all.
    tickets: list[str] = field(default_factory=list, compare=False)

    def queued(self, ticket: str) -> None:
        """Take down that it may stand in the queue with a ticket from now on."""
        if ticket not in self.tickets:
            self.tickets.append(ticket)


def end_session(
    dialect: Statements, end: Query[bool], patience: float, now: float
) -> Protocol[tuple[bool, float]]:
    """End a session that was lost, and wait until it is gone; return whether it is, and the time.

    Raises Unavailable when the database is not reached.
    """
    until = now + patience
    while True:
        try:
            reply = yield from persist(end, until - now, now, AWAY | PASSING)
        except Trouble as trouble:
            if trouble.fault in AWAY:
                raise explain(dialect, trouble, harmless=True) from trouble.__cause__
            return False, now
        there = end.read(reply)
        if not there or reply.now >= until:
            return not there, reply.now
        now = (yield Sleep(PAUSE / 5)).now


def leave(dialect: Statements, claim: Claim, now: float) -> Protocol[None]:
    """Leave the queue; what was passed on too late goes to the next.

    Where that fails nobody is to wait for who is not there: the tickets are disowned.
    """
    if not claim.tickets:
        return
    try:
        left = dialect.leave(claim.name, claim.token, claim.tickets[-1])
        reply = yield from persist(left, LEAVING, now, AWAY | PASSING)
        if dialect.can_notify and reply.matched == 0:  # who is not in the queue may be the owner
            passed = dialect.pass_on(claim.name, claim.token)
            yield from persist(passed, LEAVING, reply.now, AWAY | PASSING)
    except Trouble:
        yield Disown(tuple(claim.tickets))
        return
    claim.tickets.clear()


def give_back(dialect: Statements, claim: Claim, now: float) -> Protocol[None]:
    """Release what must not be believed in; where that fails it runs out by itself.

    A release may arrive late: what is asked for after it has another token.
    """
    with contextlib.suppress(Trouble):
        query = dialect.pass_on(claim.name, claim.token)
        yield from persist(query, LEAVING, now, AWAY | PASSING)
    claim.token = blake2b(claim.token.encode(), digest_size=16).hexdigest()


def abandon(
    dialect: Statements, claim: Claim, left: list[Query[bool]], patience: float, start: float
) -> Protocol[None]:
    """Give back what a cancelled acquire was granted, or may still be.

    ``left`` ends the session that its last try may still be run in; it is ended first.
    """
    now, until = start, start + patience
    try:
        while left:
            _, now = yield from end_session(dialect, left[-1], until - now, now)
            left.pop()
    except Unavailable:
        yield Disown(tuple(claim.tickets))
        raise
    yield from leave(dialect, claim, now)
    query = dialect.pass_on(claim.name, claim.token)
    while now < until:
        state, now = yield from look(dialect, claim.name, until - now, now)
        if state is None or state.token != claim.token:
            return
        reply = yield from persist(query, until - now, now, AWAY | PASSING)
        if reply.matched == 1:
            return
        now = (yield Sleep(PAUSE)).now  # its row was in use


def release(
    dialect: Statements,
    name: str,
    token: str,
    held: Held,
    patience: float,
    start: float,
    *,
    gated: bool = False,
    guarded: bool = False,
) -> Protocol[None]:
    """Give the lease back, with the gate if that is kept. Raises LockLost when it was not held.

    What was ``guarded`` is passed on to nobody: the transaction with the guard may be open yet, and
    who takes the name has to wait for its end.

    The token names this one grant, so repeating a release whose reply was lost cannot touch a
    later hold; that the row is then no longer ours is the first one's doing. ``patience`` counts
    from the first trouble.
    """
    now, in_doubt, contended = start, False, held.contended
    until: float | None = None
    while True:
        try:
            if gated:
                gated = False
                reply = yield AtGate(dialect.let_go(name, token), last=True)
            elif contended:
                reply = yield Run(dialect.pass_on(name, token, not guarded))
            else:
                reply = yield Run(dialect.release(name, token))
        except Trouble as trouble:
            in_doubt = in_doubt or trouble.fault is Fault.DISCONNECTED
            if trouble.fault not in AWAY | PASSING:
                raise explain(dialect, trouble, name) from trouble.__cause__
            now = (yield Sleep(PAUSE)).now
            until = now + patience if until is None else until
            if trouble.end is not None:  # it may keep the row
                with contextlib.suppress(DBLockError):
                    _, now = yield from end_session(dialect, trouble.end, until - now, now)
            if now >= until:
                if trouble.fault is Fault.BUSY:
                    raise _in_use(name) from trouble.__cause__
                raise explain(dialect, trouble, name) from trouble.__cause__
            continue
        if reply.matched == 1:
            return
        if dialect.can_notify and not contended:
            contended = True
            continue
        loss = yield from _why_lost(dialect, name, token, held, reply.now)
        if loss is not None:
            if in_doubt:
                return  # the try whose reply was lost had done it
            raise loss
        until = reply.now + patience if until is None else until
        if reply.now >= until:
            raise _in_use(name)
        now = (yield Sleep(PAUSE)).now


def _in_use(name: str) -> Unavailable:
    return Unavailable(
        f"{name!r} could not be released, its row is in use; it runs out by itself", name=name
    )


def force(dialect: Statements, name: str, patience: float, start: float) -> Protocol[bool]:
    """Free the name whoever holds it; False when nobody does.

    By the token of the hold that is seen first, so that it can be repeated after a lost reply
    without touching the hold after it.
    """
    state, now = yield from look(dialect, name, patience, start)
    if state is None or state.token is None:
        return False
    token, query = state.token, dialect.pass_on(name, state.token, passes=False)
    while state is not None and state.token == token:
        try:
            reply = yield from persist(query, patience, now, AWAY | PASSING)
        except Trouble as trouble:
            raise explain(dialect, trouble, name) from trouble.__cause__
        if reply.matched == 1:
            break
        if reply.now >= start + patience:
            raise Unavailable(f"{name!r} could not be freed, its row is in use", name=name)
        now = (yield Sleep(PAUSE)).now
        state, now = yield from look(dialect, name, patience, now)
    return True


def guard(
    dialect: Statements,
    name: str,
    token: str,
    held: Callable[[], Held],
    patience: float,
    start: float,
) -> Protocol[None]:
    """Prove the lease in the user's transaction, and keep it provable until that ends.

    ``held`` tells the hold as it is now: it may be renewed meanwhile.

    First keep all who would take the name off it, then look, from outside the transaction and
    its snapshot, whether it is still ours. Both orders would pass a test; only this one is safe.
    """
    fence = held().fence
    if held().term.over(start):
        raise expired(name)
    proof = yield from _prove(dialect, name, token, fence, patience, start)
    if not proof.given and dialect.has_witness:
        try:
            witness, mended, _ = yield from consult(dialect, 0.0, patience, proof.now)
        except Trouble as trouble:
            raise explain(dialect, trouble, name, harmless=True) from trouble.__cause__
        loss = ended(name, fence, witness)
        if loss is not None:
            raise loss from proof.cause
        if mended and proof.cause is None:
            proof = yield from _prove(dialect, name, token, fence, patience, proof.now)
    state, reply = yield from look_from(dialect, name, patience, proof.now)
    loss = failed_over(name) if held().elsewhere(reply.server) else None
    loss = loss or loss_of(state, name, token, held(), reply.now)
    if loss is None and held().term.over(reply.now):
        loss = expired(name)
    if loss is not None:
        raise loss from proof.cause
    if not proof.given:
        why = printable(str(proof.cause or "it is in use, or newer than the snapshot"))
        raise Conflict(
            f"the lease on {name!r} is held, but this transaction cannot lock its row: {why}. "
            "Retry the whole transaction",
            name=name,
        ) from proof.cause


class _Proof(NamedTuple):
    given: bool
    now: float
    cause: BaseException | None = None


def _prove(
    dialect: Statements, name: str, token: str, fence: int, patience: float, now: float
) -> Protocol[_Proof]:
    """Keep all who would take the name off it, in the user's transaction."""
    try:
        query = dialect.guard(name, token, fence)
        reply = yield RunHeld(query, within=patience)
    except Trouble as trouble:
        if trouble.fault is Fault.DISCONNECTED:
            raise transaction_broken(trouble, name) from trouble.__cause__
        if trouble.fault not in (Fault.SERIALIZATION, Fault.BUSY):
            raise explain(dialect, trouble, name) from trouble.__cause__
        return _Proof(False, now, trouble.__cause__ or trouble)
    return _Proof(query.read(reply), reply.now)


def look_at_all(dialect: Statements, now: float) -> Protocol[list[LockState]]:
    """Read the states of all names that have a token or are waited for."""
    query = dialect.held()
    states = query.read((yield from insist(dialect, query, None, 0.0, now)))
    waiters = yield from _waiters(dialect, None, now)
    return [state.told(waiters.get(state.name, ())) for state in states]


def show(dialect: Statements, name: str, now: float) -> Protocol[LockState]:
    """Read a name's state and its waiters."""
    state, now = yield from look(dialect, name, 0.0, now)
    waiters = (yield from _waiters(dialect, name, now)).get(name, ())
    return LockState(name, 0, waiters=waiters) if state is None else state.told(waiters)


def _waiters(
    dialect: Statements, name: str | None, now: float
) -> Protocol[dict[str, tuple[WaiterState, ...]]]:
    query = dialect.waiters(name)
    return query.read((yield from insist(dialect, query, name, 0.0, now)))


def look(
    dialect: Statements, name: str, patience: float, now: float
) -> Protocol[tuple[LockRow | None, float]]:
    """Read a name's state, for as long as ``patience`` tells to try to reach the database."""
    state, reply = yield from look_from(dialect, name, patience, now)
    return state, reply.now


def look_from(
    dialect: Statements, name: str, patience: float, now: float
) -> Protocol[tuple[LockRow | None, Reply]]:
    """As :func:`look`; return the reply too."""
    query = dialect.look(name)
    reply = yield from insist(dialect, query, name, patience, now)
    states = query.read(reply)
    return (states[0] if states else None), reply


def _why_lost(
    dialect: Statements, name: str, token: str, held: Held, now: float
) -> Protocol[LockLost | None]:
    """Look why a statement did not find its hold; None if that is there, its row merely in use."""
    try:
        state, now = yield from look(dialect, name, 0.0, now)
    except DBLockError as error:
        return LockLost(
            f"{name!r} is lost, and why could not be found out: {error}",
            name=name,
            reason="unknown",
        )
    loss = loss_of(state, name, token, held, now)
    if loss is not None and dialect.has_witness:
        with contextlib.suppress(Trouble):
            witness, _, _ = yield from consult(dialect, 0.0, 0.0, now)
            loss = ended(name, held.fence, witness) or loss
    return loss


def loss_of(
    state: LockRow | None, name: str, token: str, held: Held, now: float
) -> LockLost | None:
    """Return why a hold is lost, from what was last seen of its name; None if it is not.

    ``now`` is not before it was seen.
    """
    if state is None:
        return LockLost(f"{name!r} was removed from the lock table", name=name, reason="forced")
    if state.fence != held.fence:
        # Its expiry was later than that, by any clock that goes about as fast as ours.
        if not held.term.over(now - _age(state)):
            return LockLost(
                f"the lease on {name!r} was taken by another before it expired: it was released by "
                f"force, or the database's clock was set forward; {_followed(state, held.fence)}",
                name=name,
                reason="forced",
            )
        return taken_over(state, held.fence)
    if state.token != token:
        return LockLost(f"{name!r} was released by force", name=name, reason="forced")
    return None if state.held else expired(name)


def taken_over(state: LockRow, fence: int) -> LockLost:
    """Return the loss of a lease that others have had since."""
    return LockLost(
        f"the lease on {state.name!r} was taken over after it expired: {_followed(state, fence)}",
        name=state.name,
        reason="taken over",
    )


def _followed(state: LockRow, fence: int) -> str:
    return f"fence {fence} was followed by {state.fence}; it is now {state.told().describe()}"


def _age(state: LockRow) -> float:
    """Return the seconds since the last grant, by the database's clock; 0 if it does not say."""
    if state.acquired_at is None or state.expires_at is None or state.remaining is None:
        return 0.0
    return (state.expires_at - state.acquired_at).total_seconds() - state.remaining


def expired(name: str, why: str = "without being renewed in time") -> LockLost:
    """Return the loss of a lease that ran out."""
    return LockLost(f"the lease on {name!r} ran out {why}", name=name, reason="expired")
