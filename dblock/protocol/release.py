"""Giving a lease, or a place in its queue, back; and ending the sessions that may still want it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DBLockError, Unavailable
from .explain import explain, unknown
from .faults import Fault, StatementError
from .inspect import look, why_lost
from .lease import Held, LeaseRequest, Renounced
from .retry import AWAY, PASSING, PAUSE, retry
from .steps import Disown, Execute, ExecuteOnSession, Procedure, Query, Sleep
from .tokens import is_shared, renounced

if TYPE_CHECKING:
    from collections.abc import Callable

    from .state import LockRow
    from .statements import Statements

    Find = Callable[[float, float], Procedure[tuple[LockRow | None, float]]]


def end_session(
    dialect: Statements, end: Query[bool], patience: float, now: float
) -> Procedure[tuple[bool, float]]:
    """End a session that was lost, and wait until it is gone; return whether it is, and the time.

    ``patience`` may have been spent on finding out that it was lost. A server that answers at all
    ends it in a moment, and gets that. Raises Unavailable when the database is not reached.
    """
    until, asked = now + patience, False
    while True:
        try:
            reply = yield from retry(end, until - now, now, AWAY | PASSING)
        except StatementError as failure:
            if failure.fault in AWAY:
                raise explain(dialect, failure, harmless=True) from failure.__cause__
            return False, now
        there = end.read(reply)
        if not asked:
            asked, until = True, max(until, reply.now + dialect.timing.leaving)
        if not there or reply.now >= until:
            return not there, reply.now
        now = (yield Sleep(PAUSE / 5)).now


def leave(dialect: Statements, request: LeaseRequest, now: float) -> Procedure[DBLockError | None]:
    """Leave the queue; what was passed on too late goes to the next. Return what prevents it.

    Where it cannot be left nobody is to wait for who is not there: the tickets are disowned. From
    then on nothing is passed on with them, so it is enough to see that nothing was before.
    """
    if not request.tickets:
        return None
    try:
        left = dialect.leave(request.name, request.token, request.tickets[-1])
        reply = yield from retry(left, dialect.timing.leaving, now, AWAY | PASSING)
        if dialect.can_notify and reply.matched == 0:  # who is not in the queue may be the owner
            yield from _return(dialect, request, reply.now)
    except StatementError as failure:
        yield Disown(tuple(request.tickets))
        return (yield from _left_behind(dialect, request, failure))
    request.tickets.clear()
    return None


def _left_behind(
    dialect: Statements, request: LeaseRequest, failure: StatementError
) -> Procedure[DBLockError | None]:
    """Return why the name may be passed on to who could not leave the queue; None if it is not."""
    if not dialect.can_notify:
        return None
    if failure.fault not in AWAY:
        now = (yield Sleep(0)).now
        if not (yield from _has(dialect, request.name, request.token, now)):
            return None
        try:
            yield from _return(dialect, request, now)
        except StatementError as again:
            failure = again
        else:
            return None
    return explain(dialect, failure, request.name, harmless=True)


def _has(dialect: Statements, name: str, token: str, now: float) -> Procedure[bool]:
    """Whether a token has the name, by what can be seen of it just now."""
    try:
        state, _ = yield from look(dialect, name, 0.0, now)
    except DBLockError:
        return True
    return state is not None and state.held and token in state.members


def _return(dialect: Statements, request: LeaseRequest, now: float) -> Procedure[None]:
    """Give back what was passed on to it."""
    passed = _ending(dialect, request.name, request.token, request.token)
    yield from retry(passed, dialect.timing.leaving, now, AWAY | PASSING)


def give_back(
    dialect: Statements, request: LeaseRequest, now: float
) -> Procedure[DBLockError | None]:
    """Release what must not be believed in. Return what prevents it: then it runs out by itself."""
    renounce(request)
    return (yield from return_all(dialect, request, now))


def renounce(request: LeaseRequest) -> None:
    """Go on with another token, since the release of this one may arrive late."""
    name, own = request.name, request.token
    request.unreturned += [Renounced(name, one, own) for one in (own, request.group) if one]
    request.token, request.group = renounced(own), None


def return_all(
    dialect: Statements, request: LeaseRequest, now: float
) -> Procedure[DBLockError | None]:
    """Release what was renounced, as far as that was not answered yet. Return what prevents it."""
    unreturned, prevented = request.unreturned, None
    request.unreturned = []
    for one in unreturned:
        try:
            query = _ending(dialect, one.name, one.token, one.own)
            yield from retry(query, dialect.timing.leaving, now, AWAY | PASSING)
        except StatementError as failure:
            if failure.fault in AWAY or (yield from _has(dialect, one.name, one.own, now)):
                prevented = explain(dialect, failure, one.name, harmless=True)
                request.unreturned.append(one)
    return prevented


def _ending(dialect: Statements, name: str, token: str, own: str) -> Query[int]:
    """Return what ends a hold with a ``token``. Of readers only the one with its ``own`` goes."""
    if is_shared(token):
        return dialect.leave_readers(name, token, own)
    return dialect.pass_on(name, token)


def abandon(
    dialect: Statements,
    request: LeaseRequest,
    orphaned: list[Query[bool]],
    patience: float,
    start: float,
    find: Find | None = None,
) -> Procedure[None]:
    """Give back what a cancelled acquire was granted, or may still be.

    ``orphaned`` ends the session that its last try may still be run in; it is ended first. ``find``
    looks for what was granted, if that may be any of several names.
    """
    now, until = start, start + patience
    try:
        while orphaned:
            _, now = yield from end_session(dialect, orphaned[-1], until - now, now)
            orphaned.pop()
    except Unavailable:
        yield Disown(tuple(request.tickets))
        raise
    yield from leave(dialect, request, now)
    while now < until:
        if find is None:
            state, now = yield from look(dialect, request.name, until - now, now)
        else:
            state, now = yield from find(until - now, now)
        if state is None or state.token is None or request.token not in state.members:
            return
        query = _ending(dialect, state.name, state.token, request.token)
        reply = yield from retry(query, until - now, now, AWAY | PASSING)
        if reply.matched == 1:
            return
        now = (yield Sleep(PAUSE)).now  # its row was in use


def release(
    dialect: Statements,
    name: str,
    token: str,
    held: Held | None,
    patience: float,
    start: float,
    *,
    reader: str | None = None,
    with_user_lock: bool = False,
    guarded: bool = False,
    in_doubt: bool = False,
) -> Procedure[None]:
    """Give the lease back, with the user lock if it has one. Raises LockLost when it was not held.

    What was ``guarded`` is passed on to nobody: the transaction with the guard may be open yet, and
    who takes the name has to wait for its end.

    ``held`` is None for a hold of which nothing is known but the token.

    The token names this one grant, so repeating a release whose reply was lost cannot touch a
    later hold; that the row is then no longer ours is the first one's doing. So is it if an earlier
    release is ``in_doubt``. ``patience`` counts from the first failure. A ``reader``, by its own
    token, only leaves those who share the hold.
    """
    now, contended = start, held is not None and held.contended
    until: float | None = None
    while True:
        try:
            if with_user_lock:
                with_user_lock = False
                reply = yield ExecuteOnSession(dialect.release_and_unlock(name, token), last=True)
            elif reader is not None:
                reply = yield Execute(dialect.leave_readers(name, token, reader))
            elif contended:
                reply = yield Execute(dialect.pass_on(name, token, not guarded))
            else:
                reply = yield Execute(dialect.release(name, token))
        except StatementError as failure:
            in_doubt = in_doubt or failure.fault is Fault.DISCONNECTED
            if failure.fault not in AWAY | PASSING:
                told = unknown(failure, name) if in_doubt else explain(dialect, failure, name)
                raise told from failure.__cause__
            now = (yield Sleep(PAUSE)).now
            until = now + patience if until is None else until
            if failure.end is not None:  # it may keep the row
                try:
                    _, now = yield from end_session(dialect, failure.end, until - now, now)
                except DBLockError:
                    now = (yield Sleep(0)).now  # that took its time too
            if now >= until:
                if in_doubt:
                    raise unknown(failure, name) from failure.__cause__
                if failure.fault is Fault.BUSY:
                    raise _in_use(name) from failure.__cause__
                raise explain(dialect, failure, name) from failure.__cause__
            continue
        if reply.matched == 1:
            return
        if dialect.can_notify and not contended and reader is None:
            contended = True
            continue
        loss = yield from why_lost(dialect, name, token, held, reply.now)
        if loss is not None:
            if in_doubt:
                return  # the try whose reply was lost had done it
            raise loss
        if reader is not None:
            return  # others share it; nobody but an earlier try has taken this one off the list
        until = reply.now + patience if until is None else until
        if reply.now >= until:
            raise unknown("its row is in use", name) if in_doubt else _in_use(name)
        now = (yield Sleep(PAUSE)).now


def _in_use(name: str) -> Unavailable:
    return Unavailable(
        f"{name!r} could not be released, because its row is in use; it expires by itself",
        name=name,
    )


def force(dialect: Statements, name: str, patience: float, start: float) -> Procedure[bool]:
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
            reply = yield from retry(query, patience, now, AWAY | PASSING)
        except StatementError as failure:
            raise explain(dialect, failure, name) from failure.__cause__
        if reply.matched == 1:
            break
        if reply.now >= start + patience:
            raise Unavailable(f"{name!r} could not be freed, because its row is in use", name=name)
        now = (yield Sleep(PAUSE)).now
        state, now = yield from look(dialect, name, patience, now)
    return True
