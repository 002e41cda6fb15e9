"""Taking, proving and giving back a lease. :mod:`.renewing` keeps it.

::

    acquire:  try ── granted ──────────────────────────────> Held
               │ ├── refused ── look ── sleep ── looks free ─> try
               │ └── no reply ── settle ── token there ────> Held
               │                    │ └── not there ───────> as refused
               │                    └── nobody answers ────> OutcomeUnknown
               └── the deadline, or the policy stops ──────> Refused
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Conflict, DBLockError, LockLost, OutcomeUnknown, Unavailable
from .faults import Fault, Trouble
from .state import LockState
from .steps import Protocol, Query, Reply, Run, RunHeld, Sleep
from .term import Term
from .troubles import explain, transaction_broken

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..policy import RetryPolicy

# Nothing was done, and the same statement may well succeed in a moment.
PASSING = frozenset({Fault.BUSY, Fault.DEADLOCK, Fault.SERIALIZATION, Fault.CANCELED})
# Another connection may well do: after a failover the old primary is a standby.
AWAY = frozenset({Fault.UNREACHABLE, Fault.DISCONNECTED, Fault.READ_ONLY})
# Between two tries to reach a database that is away, or a row that is busy.
PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Held:
    """The lease was granted."""

    fence: int
    term: Term
    #: The server that granted it, where it is known.
    server: str | None = None

    def elsewhere(self, server: str | None) -> bool:
        """Whether a reply of ``server`` is that of another server than granted it."""
        return None not in (self.server, server) and self.server != server


@dataclass(frozen=True, slots=True)
class Refused:
    """It was not, within the wait. ``state`` is what was last seen of the name."""

    state: LockState | None


@dataclass(frozen=True, slots=True)
class Claim:
    """What an acquire asks for. The token is made before the attempt; it alone proves ownership."""

    name: str
    token: str
    owner: str
    ttl: float


def acquire(
    dialect: Dialect,
    claim: Claim,
    policy: RetryPolicy,
    *,
    wait: float | None,
    patience: float,
    start: float,
) -> Protocol[Held | Refused]:
    """Take the lease, waiting up to ``wait`` seconds from ``start``.

    ``patience`` bounds how long an unreachable database is tried, and how long an attempt whose
    reply was lost is looked for. All tries carry one token: whichever arrived, it is this hold.
    """

    def reach() -> float:
        if wait is None or cut_off_once:  # the truth comes before the deadline
            return patience
        return max(0.0, min(patience, start + wait - now))

    query = dialect.grant(claim.name, claim.token, claim.owner, claim.ttl)
    number, now = 0, start
    in_doubt: float | None = None  # when the first try without a clear reply was sent, or before
    lost: list[Query] = []  # what ends the sessions that such tries were sent on
    cut_off_once = replaced = False
    while True:
        number += 1
        held, cut_off = None, False
        try:
            reply = yield from persist(query, reach(), now, AWAY - {Fault.DISCONNECTED})
            now = reply.now
            grant = dialect.granted(reply, claim.token)
            if grant is not None and grant.remaining > 0:
                held = Held(grant.fence, Term(reply.sent, claim.ttl), reply.server)
        except Trouble as trouble:
            cut_off = trouble.fault is Fault.DISCONNECTED
            cut_off_once = cut_off_once or cut_off
            if cut_off or trouble.fault is Fault.CANCELED:  # in whichever part of the statement
                in_doubt = now if in_doubt is None else in_doubt
                lost += [trouble.end] if trouble.end is not None else []
            elif trouble.fault not in PASSING:
                if in_doubt is None:
                    raise explain(dialect, trouble, claim.name) from trouble.__cause__
                raise _unknown(claim, explain(dialect, trouble)) from trouble.__cause__
        if held is None:
            state, reply = yield from _settle(dialect, claim, reach(), now, in_doubt, lost)
            now = reply.now
            if in_doubt is not None and state is not None and state.token == claim.token:
                # A grant runs after it was sent, so its expiry is no earlier than this term's.
                term = Term(in_doubt, claim.ttl)
                held = Held(state.fence, term, reply.server) if state.held else None
            elif cut_off and (state is None or not state.held) and not replaced:
                replaced = True  # a connection that had died while idle is no reason to be refused
                continue
        if held is not None:
            if not held.term.over(now):
                return held
            # The reply took longer than the lease is good for.
            yield from give_back(dialect, claim)
            state, reply = yield from _settle(dialect, claim, reach(), now, in_doubt, lost)
            now = reply.now
        while True:
            left = None if wait is None else start + wait - now
            sleep = policy.sleep_after(claim.name, number, now - start, left)
            if sleep is None:
                if in_doubt is not None:  # a try that is still under way must not outlive this
                    yield from give_back(dialect, claim)
                return Refused(state)
            if state is not None and state.held and state.remaining is not None:
                sleep = min(sleep, state.remaining)
            now = (yield Sleep(sleep)).now
            # Waiters look, which takes no lock, and try when the name seems free.
            state, reply = yield from _settle(dialect, claim, reach(), now, in_doubt, lost)
            now = reply.now
            if state is None or not state.held or state.token == claim.token:
                break
            number += 1


def _settle(
    dialect: Dialect,
    claim: Claim,
    patience: float,
    now: float,
    in_doubt: float | None,
    lost: list[Query],
) -> Protocol[tuple[LockState | None, Reply]]:
    """Look at the name; whoever cannot, and does not know what became of a try, says so.

    What is not there may still come, as long as the session it was sent on is alive. So that is
    ended first.
    """
    try:
        while lost:
            now = yield from end_session(dialect, lost[-1], patience, now)
            lost.pop()
        return (yield from _look(dialect, claim.name, patience, now))
    except DBLockError as error:
        if in_doubt is None:
            raise
        raise _unknown(claim, error) from error


def _unknown(claim: Claim, error: DBLockError) -> OutcomeUnknown:
    """Return what to tell of ``error`` when the reply to a try before it never came."""
    return OutcomeUnknown(
        f"the reply to acquiring {claim.name!r} never came, and the database could not be "
        f"asked since: {error}. It may be held for up to {claim.ttl:g} s; nothing was started",
        name=claim.name,
    )


def end_session(dialect: Dialect, end: Query, patience: float, now: float) -> Protocol[float]:
    """End a session that was lost, and wait until it is gone; return the time.

    Where that cannot be, nothing more is known of it than before. Raises Unavailable when the
    database is not reached.
    """
    until = now + patience
    while True:
        try:
            reply = yield from persist(end, until - now, now, AWAY | PASSING)
        except Trouble as trouble:
            if trouble.fault in AWAY:
                raise explain(dialect, trouble, harmless=True) from trouble.__cause__
            return now
        if not reply.rows or reply.now >= until:
            return reply.now
        now = (yield Sleep(PAUSE / 5)).now


def end_lost(lost: list[Query], within: float | None = None) -> Protocol[None]:
    """End the sessions that earlier tries of a statement lost, before the next; wait for nothing.

    Raises Trouble where the database is not reached: that try is spent then, for it would have
    fared no better. So ending them takes no time that a dead server would not have taken anyway.
    """
    while lost:
        try:
            yield Run(lost[-1], within)
        except Trouble as trouble:
            if trouble.fault in AWAY:
                raise
        lost.pop()


def give_back(dialect: Dialect, claim: Claim) -> Protocol[None]:
    """Release what must not be believed in; where that fails it runs out by itself."""
    with contextlib.suppress(Trouble):
        yield Run(dialect.release(claim.name, claim.token))


def abandon(
    dialect: Dialect, claim: Claim, left: list[Query], patience: float, start: float
) -> Protocol[None]:
    """Give back what a cancelled acquire was granted, or may still be.

    ``left`` ends the session that its last try may still be run in; it is ended first.
    """
    now, until = start, start + patience
    while left:
        now = yield from end_session(dialect, left[-1], until - now, now)
        left.pop()
    query = dialect.release(claim.name, claim.token)
    while now < until:
        now = (yield from persist(query, until - now, now, AWAY | PASSING)).now
        state, now = yield from look(dialect, claim.name, until - now, now)
        if state is None or state.token != claim.token:
            return
        now = (yield Sleep(PAUSE)).now  # its row was in use


def release(
    dialect: Dialect, name: str, token: str, fence: int, patience: float, start: float
) -> Protocol[None]:
    """Give the lease back. Raises LockLost when it was no longer this hold's.

    The token names this one grant, so repeating a release whose reply was lost cannot touch a
    later hold; that the row is then no longer ours is the first one's doing. ``patience`` counts
    from the first trouble.
    """
    now, query, in_doubt = start, dialect.release(name, token), False
    until: float | None = None
    while True:
        try:
            reply = yield Run(query)
        except Trouble as trouble:
            in_doubt = in_doubt or trouble.fault is Fault.DISCONNECTED
            if trouble.fault not in AWAY | PASSING:
                raise explain(dialect, trouble, name) from trouble.__cause__
            now = (yield Sleep(PAUSE)).now
            until = now + patience if until is None else until
            if trouble.end is not None:  # it may keep the row
                with contextlib.suppress(DBLockError):
                    now = yield from end_session(dialect, trouble.end, until - now, now)
            if now >= until:
                raise explain(dialect, trouble, name) from trouble.__cause__
            continue
        if reply.matched == 1:
            return
        loss = yield from _why_lost(dialect, name, token, fence, reply.now)
        if loss is not None:
            if in_doubt:
                return  # the try whose reply was lost had done it
            raise loss
        until = reply.now + patience if until is None else until
        if reply.now >= until:
            raise Unavailable(
                f"{name!r} could not be released, its row is in use; it runs out by itself",
                name=name,
            )
        now = (yield Sleep(PAUSE)).now


def force(dialect: Dialect, name: str, patience: float, start: float) -> Protocol[bool]:
    """Free the name whoever holds it; False when nobody does.

    By the token of the hold that is seen first, so that it can be repeated after a lost reply
    without touching the hold after it.
    """
    state, now = yield from look(dialect, name, patience, start)
    if state is None or state.token is None:
        return False
    token, query = state.token, dialect.release(name, state.token)
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
    dialect: Dialect, name: str, token: str, held: Held, patience: float, start: float
) -> Protocol[None]:
    """Prove the lease in the user's transaction, and keep it provable until that ends.

    First keep all who would take the name off it, then look, from outside the transaction and
    its snapshot, whether it is still ours. Both orders would pass a test; only this one is safe.
    """
    if held.term.over(start):
        raise expired(name)
    cause: BaseException | None = None
    try:
        reply = yield RunHeld(dialect.guard(name, token, held.fence), within=patience)
        proved, now, said = bool(reply.rows), reply.now, "it is in use, or newer than the snapshot"
    except Trouble as trouble:
        if trouble.fault is Fault.DISCONNECTED:
            raise transaction_broken(trouble, name) from trouble.__cause__
        if trouble.fault not in (Fault.SERIALIZATION, Fault.BUSY):
            raise explain(dialect, trouble, name) from trouble.__cause__
        proved, now, said, cause = False, start, str(trouble), trouble.__cause__
    state, reply = yield from _look(dialect, name, patience, now)
    loss = failed_over(name) if held.elsewhere(reply.server) else None
    loss = loss or loss_of(state, name, token, held.fence)
    if loss is None and held.term.over(reply.now):
        loss = expired(name)
    if loss is not None:
        raise loss from cause
    if not proved:
        raise Conflict(
            f"the lease on {name!r} is held, but this transaction cannot lock its row: {said}. "
            "Retry the whole transaction",
            name=name,
        ) from cause


def look_at_all(dialect: Dialect, now: float) -> Protocol[list[LockState]]:
    """Read the states of all names with a token."""
    return dialect.states((yield from _read(dialect, dialect.held(), None, 0.0, now)))


def look(
    dialect: Dialect, name: str, patience: float, now: float
) -> Protocol[tuple[LockState | None, float]]:
    """Read a name's state, for as long as ``patience`` tells to try to reach the database."""
    state, reply = yield from _look(dialect, name, patience, now)
    return state, reply.now


def _look(
    dialect: Dialect, name: str, patience: float, now: float
) -> Protocol[tuple[LockState | None, Reply]]:
    reply = yield from _read(dialect, dialect.look(name), name, patience, now)
    states = dialect.states(reply)
    return (states[0] if states else None), reply


def _read(
    dialect: Dialect, query: Query, name: str | None, patience: float, now: float
) -> Protocol[Reply]:
    try:
        return (yield from persist(query, patience, now, AWAY | PASSING))
    except Trouble as trouble:
        raise explain(dialect, trouble, name, harmless=True) from trouble.__cause__


def persist(
    query: Query, patience: float, now: float, faults: frozenset[Fault] | set[Fault]
) -> Protocol[Reply]:
    """Run a statement that is safe to repeat after ``faults``, for up to ``patience`` seconds.

    However short that is, a connection that had died while idle is replaced once.
    """
    until, replaced = now + patience, False
    lost: list[Query] = []
    while True:
        try:
            yield from end_lost(lost)
            return (yield Run(query))
        except Trouble as trouble:
            if trouble.fault not in faults:
                raise
            lost += [] if trouble.end is None else [trouble.end]
            if trouble.fault is Fault.DISCONNECTED and not replaced:
                replaced = True
                continue
            now = (yield Sleep(0)).now  # the try itself took its time
            if now >= until:
                raise
        now = (yield Sleep(min(PAUSE, until - now))).now


def _why_lost(
    dialect: Dialect, name: str, token: str, fence: int, now: float
) -> Protocol[LockLost | None]:
    """Look why a statement did not find its hold; None if that is there, its row merely in use."""
    try:
        state, _ = yield from look(dialect, name, 0.0, now)
    except DBLockError as error:
        return LockLost(
            f"{name!r} is lost, and why could not be found out: {error}",
            name=name,
            reason="unknown",
        )
    return loss_of(state, name, token, fence)


def loss_of(state: LockState | None, name: str, token: str, fence: int) -> LockLost | None:
    """Return why a hold is lost, from what was last seen of its name; None if it is not."""
    if state is None:
        return LockLost(f"{name!r} was removed from the lock table", name=name, reason="forced")
    if state.fence != fence:
        return LockLost(
            f"the lease on {name!r} was taken over after it expired: fence {fence} was followed "
            f"by {state.fence}; it is now {state.describe()}",
            name=name,
            reason="taken over",
        )
    if state.token != token:
        return LockLost(f"{name!r} was released by force", name=name, reason="forced")
    return None if state.held else expired(name)


def expired(name: str, why: str = "without being renewed in time") -> LockLost:
    """Return the loss of a lease that ran out."""
    return LockLost(f"the lease on {name!r} ran out {why}", name=name, reason="expired")


def failed_over(name: str) -> LockLost:
    """Return the loss of a lease that another server granted.

    What is replicated may be older than what that server told, to others too.
    """
    return LockLost(
        f"the lease on {name!r} was granted by a server whose place another has taken",
        name=name,
        reason="failover",
    )
