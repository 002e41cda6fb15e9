"""Releasing a lease, leaving its queue, and ending sessions that may still be granted it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DBLockError, StaleFence, Unavailable
from .commands import Command, Leave, LeaveReaders, PassOn, Release, ReleaseAndUnlock
from .explain import explain, unknown
from .faults import Fault, StatementError
from .inspect import look, why_lost
from .lease import LeaseRequest, ReleaseRequest, Renounced
from .retry import AWAY, PASSING, PAUSE, retry
from .steps import Disown, Execute, ExecuteOnSession, Procedure, Sleep
from .tokens import is_shared, renounced

if TYPE_CHECKING:
    from collections.abc import Callable

    from .state import LockRow
    from .statements import Statements

    Find = Callable[[float, float], Procedure[tuple[LockRow | None, float]]]


def end_session(
    dialect: Statements, end: Command[bool], patience: float, now: float
) -> Procedure[tuple[bool, float]]:
    """End a lost session, and wait until it is gone; return whether it is gone, and the time.

    The caller may have used up ``patience`` while it found out that the session was lost. A server
    that answers ends the session within a moment, so it gets :attr:`.Timing.leaving` seconds from
    its first reply. Raises StatementError when the database is not reached.
    """
    until, asked = now + patience, False
    while True:
        try:
            reply = yield from retry(end, until - now, now, AWAY | PASSING)
        except StatementError as failure:
            if failure.fault in AWAY:
                raise
            return False, failure.now
        there = reply.answer
        if not asked:
            asked, until = True, max(until, reply.now + dialect.timing.leaving)
        if not there or reply.now >= until:
            return not there, reply.now
        now = (yield Sleep(PAUSE / 5)).now


def leave(dialect: Statements, request: LeaseRequest, now: float) -> Procedure[DBLockError | None]:
    """Leave the queue, and release a name that was passed on meanwhile. Return the error that
    prevents it, if any.

    If the waiter cannot leave, the others must not wait for it: its tickets are disowned. No
    release passes the name on to a disowned ticket, so it is enough to check that none did before.
    """
    if not request.tickets:
        return None
    try:
        left = Leave(request.name, request.token, request.tickets[-1])
        reply = yield from retry(left, dialect.timing.leaving, now, AWAY | PASSING)
        # A waiter that is no longer in the queue may hold the name.
        if dialect.can_notify and reply.answer == 0:
            yield from _return(dialect, request, reply.now)
    except StatementError as failure:
        yield Disown(tuple(request.tickets))
        return (yield from _left_behind(dialect, request, failure))
    request.tickets.clear()
    return None


def _left_behind(
    dialect: Statements, request: LeaseRequest, failure: StatementError
) -> Procedure[DBLockError | None]:
    """After a waiter could not leave the queue: return the error if it may hold the name; None if
    it does not."""
    if not dialect.can_notify:
        return None
    if failure.fault not in AWAY:
        if not (yield from _has(dialect, request.name, request.token, failure.now)):
            return None
        try:
            yield from _return(dialect, request, failure.now)
        except StatementError as again:
            failure = again
        else:
            return None
    return explain(dialect, failure, request.name, harmless=True)


def _has(dialect: Statements, name: str, token: str, now: float) -> Procedure[bool]:
    """Whether a token holds the name, or may hold it because the row cannot be read now."""
    try:
        state, _ = yield from look(dialect, name, 0.0, now)
    except DBLockError:
        return True
    return state is not None and state.held and token in state.members


def _return(dialect: Statements, request: LeaseRequest, now: float) -> Procedure[None]:
    """Release the name that was passed on to the request."""
    passed = _ending(dialect, request.name, request.token, request.token)
    yield from retry(passed, dialect.timing.leaving, now, AWAY | PASSING)


def give_back(
    dialect: Statements, request: LeaseRequest, now: float
) -> Procedure[DBLockError | None]:
    """Release a hold that must not be used. Return the error that prevents it; then the lease
    expires by itself."""
    renounce(request)
    return (yield from return_all(dialect, request, now))


def renounce(request: LeaseRequest) -> None:
    """Go on with another token, since the release of the old token may arrive late."""
    name, own = request.name, request.token
    request.unreturned += [Renounced(name, one, own) for one in (own, request.group) if one]
    request.token, request.group = renounced(own), None


def return_all(
    dialect: Statements, request: LeaseRequest, now: float
) -> Procedure[DBLockError | None]:
    """Release the holds of renounced tokens whose releases have no reply yet. Return the error that
    prevents it, if any."""
    unreturned, prevented = request.unreturned, None
    request.unreturned = []
    for one in unreturned:
        try:
            command = _ending(dialect, one.name, one.token, one.own)
            yield from retry(command, dialect.timing.leaving, now, AWAY | PASSING)
        except StatementError as failure:
            if failure.fault in AWAY or (yield from _has(dialect, one.name, one.own, now)):
                prevented = explain(dialect, failure, one.name, harmless=True)
                request.unreturned.append(one)
    return prevented


def _ending(dialect: Statements, name: str, token: str, own: str) -> Command[int]:
    """Return the statement that ends the hold of ``token``. If readers share it, only the reader
    with the token ``own`` leaves."""
    if is_shared(token):
        return LeaveReaders(name, token, own)
    return _passing_on(dialect, name, token)


def _passing_on(dialect: Statements, name: str, token: str, *, passes: bool = True) -> Command[int]:
    """Return the command that frees a name, and lets the first waiter know where it can be."""
    return PassOn(name, token, passes) if dialect.can_notify else Release(name, token)


def abandon(
    dialect: Statements,
    request: LeaseRequest,
    orphaned: list[Command[bool]],
    patience: float,
    start: float,
    find: Find | None = None,
) -> Procedure[None]:
    """Release the name that a cancelled acquire was granted, or may still be granted.

    ``orphaned`` has the queries that end the sessions in which its last try may still run; these
    sessions are ended first. ``find`` locates the slot that was granted; only a semaphore needs it.
    """
    now, until = start, start + patience
    try:
        while orphaned:
            _, now = yield from end_session(dialect, orphaned[-1], until - now, now)
            orphaned.pop()
    except StatementError as failure:
        yield Disown(tuple(request.tickets))
        raise explain(dialect, failure, harmless=True) from failure.__cause__
    yield from leave(dialect, request, now)
    while now < until:
        if find is None:
            state, now = yield from look(dialect, request.name, until - now, now)
        else:
            state, now = yield from find(until - now, now)
        if state is None or state.token is None or request.token not in state.members:
            return
        command = _ending(dialect, state.name, state.token, request.token)
        reply = yield from retry(command, until - now, now, AWAY | PASSING)
        if reply.answer == 1:
            return
        now = (yield Sleep(PAUSE)).now  # its row was in use


def release(
    dialect: Statements, request: ReleaseRequest, patience: float, start: float
) -> Procedure[None]:
    """Release the lease, and the user lock if it has one. Raises LockLost when it was not held.

    The token belongs to this one grant, so repeating a release whose reply was lost cannot touch a
    later hold. If the repeated release finds that the hold is over, the lost one has ended it. The
    same is true if an earlier release is ``in_doubt``. ``patience`` counts from the first failure.
    """
    name, token, held, reader, with_user_lock, guarded, in_doubt = request
    now, contended = start, held is not None and held.contended
    until: float | None = None
    while True:
        try:
            if with_user_lock:
                with_user_lock = False
                reply = yield ExecuteOnSession(ReleaseAndUnlock(name, token), last=True)
            elif reader is not None:
                reply = yield Execute(LeaveReaders(name, token, reader))
            elif contended:
                reply = yield Execute(_passing_on(dialect, name, token, passes=not guarded))
            else:
                reply = yield Execute(Release(name, token))
        except StatementError as failure:
            in_doubt = in_doubt or failure.fault is Fault.DISCONNECTED
            if failure.fault not in AWAY | PASSING:
                told = unknown(failure, name) if in_doubt else explain(dialect, failure, name)
                raise told from failure.__cause__
            now = (yield Sleep(PAUSE)).now
            until = now + patience if until is None else until
            if failure.end is not None:  # the lost session may have the row locked
                try:
                    _, now = yield from end_session(dialect, failure.end, until - now, now)
                except StatementError as away:
                    now = away.now
            if now >= until:
                if in_doubt:
                    raise unknown(failure, name) from failure.__cause__
                if failure.fault is Fault.BUSY:
                    raise _in_use(name) from failure.__cause__
                raise explain(dialect, failure, name) from failure.__cause__
            continue
        if reply.answer == 1:
            return
        if dialect.can_notify and not contended and reader is None:
            contended = True
            continue
        proof = token if reader is None or held is not None else reader
        loss = yield from why_lost(dialect, name, proof, held, reply.now)
        if loss is not None:
            if in_doubt:
                return  # the try whose reply was lost has released it
            raise loss
        if reader is not None and held is not None:
            return  # others share it; only an earlier try can have removed this reader
        until = reply.now + patience if until is None else until
        if reply.now >= until:
            raise unknown("its row is in use", name) if in_doubt else _in_use(name)
        now = (yield Sleep(PAUSE)).now


def _in_use(name: str) -> Unavailable:
    return Unavailable(
        f"{name!r} could not be released, because its row is in use; it expires by itself",
        name=name,
    )


def force(
    dialect: Statements, name: str, fence: int | None, patience: float, start: float
) -> Procedure[bool]:
    """Free the name of its holder; False when it has none. Raises StaleFence if the hold has
    another fence than ``fence``.

    Every try carries the token of the hold that was read first. So a try can be repeated after a
    lost reply without touching the next hold.
    """
    state, now = yield from look(dialect, name, patience, start)
    if state is None or state.token is None:
        return False
    if fence is not None and state.fence != fence:
        raise StaleFence(
            f"{name!r} was not released: the hold with fence {fence} is over, and it is now "
            f"{state.told().describe()} (fence {state.fence})",
            name=name,
            fence=fence,
            newest=state.fence,
        )
    token = state.token
    command = _passing_on(dialect, name, token, passes=False)
    while state is not None and state.token == token:
        try:
            reply = yield from retry(command, patience, now, AWAY | PASSING)
        except StatementError as failure:
            raise explain(dialect, failure, name) from failure.__cause__
        if reply.answer == 1:
            break
        if reply.now >= start + patience:
            raise Unavailable(f"{name!r} could not be freed, because its row is in use", name=name)
        now = (yield Sleep(PAUSE)).now
        state, now = yield from look(dialect, name, patience, now)
    return True
