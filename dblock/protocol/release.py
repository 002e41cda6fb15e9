"""Releasing a lease, leaving its queue, and ending sessions that may still be granted it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..errors import DBLockError, StaleFence, Unavailable
from .commands import Command, Leave, LeaveReaders, Look, PassOn, Release, ReleaseAndUnlock
from .exchange import Exchange
from .explain import unknown
from .faults import Fault, StatementError
from .inspect import look, why_lost
from .lease import LeaseRequest, ReleaseRequest, Renounced
from .retry import AGAIN, AWAY, PAUSE, UNREACHED
from .steps import Disown, Execute, ExecuteOnSession, Procedure, Sleep
from .tokens import is_shared, renounced

if TYPE_CHECKING:
    from collections.abc import Callable

    from .dialect import AbstractDialect
    from .state import LockRow

    Find = Callable[[Exchange], Procedure[LockRow | None]]


def end_session(
    exchange: Exchange, end: Command[bool], *, patience: float | None = None
) -> Procedure[bool]:
    """End a lost session, and wait until it is gone; return whether it is gone.

    The caller may have used up its patience while it found out that the session was lost. A server
    that answers ends the session within a moment, so it gets :attr:`.Timing.leaving` seconds from
    its first reply. Raises StatementError when the database is not reached.
    """
    until = exchange.now + (exchange.reach if patience is None else patience)
    asked = False
    while True:
        try:
            reply = yield from exchange.ask(end, patience=until - exchange.now)
        except StatementError as failure:
            if failure.fault in UNREACHED:
                raise
            return False
        there = reply.answer
        if not asked:
            asked, until = True, max(until, reply.now + exchange.dialect.timing.leaving)
        if not there or reply.now >= until:
            return not there
        exchange.now = (yield Sleep(PAUSE / 5)).now


def leave(exchange: Exchange, request: LeaseRequest) -> Procedure[DBLockError | None]:
    """Leave the queue, and release a name that was passed on meanwhile. Return the error that
    prevents it, if any.

    If the waiter cannot leave, the others must not wait for it: its tickets are disowned. No
    release passes the name on to a disowned ticket, so it is enough to check that none did before.
    """
    if not request.tickets:
        return None
    try:
        left = Leave(request.name, request.token, request.tickets[-1])
        reply = yield from exchange.ask(left, patience=exchange.dialect.timing.leaving)
        # A waiter that is no longer in the queue may hold the name.
        if exchange.dialect.traits.can_notify and reply.answer == 0:
            yield from _return(exchange, request)
    except StatementError as failure:
        yield Disown(tuple(request.tickets))
        return (yield from _left_behind(exchange, request, failure))
    request.tickets.clear()
    return None


def _left_behind(
    exchange: Exchange, request: LeaseRequest, failure: StatementError
) -> Procedure[DBLockError | None]:
    """After a waiter could not leave the queue: return the error if it may hold the name; None if
    it does not."""
    if not exchange.dialect.traits.can_notify:
        return None
    if failure.fault not in AWAY:
        if not (yield from _has(exchange, request.name, request.token)):
            return None
        try:
            yield from _return(exchange, request)
        except StatementError as again:
            failure = again
        else:
            return None
    return exchange.explain(failure, harmless=True)


def _has(exchange: Exchange, name: str, token: str) -> Procedure[bool]:
    """Whether a token holds a name, or may hold it because the row cannot be read now."""
    try:
        reply = yield from exchange.ask_or_explain(Look((name,)), patience=0.0)
    except DBLockError:
        return True
    return any(state.held and token in state.members for state in reply.answer)


def _return(exchange: Exchange, request: LeaseRequest) -> Procedure[None]:
    """Release the name that was passed on to the request."""
    passed = _ending(exchange.dialect, request.name, request.token, request.token)
    yield from exchange.ask(passed, patience=exchange.dialect.timing.leaving)


def give_back(
    exchange: Exchange, request: LeaseRequest, *, lost: bool = False
) -> Procedure[DBLockError | None]:
    """Release a hold that must not be used. Return the error that prevents it; then the lease
    expires by itself. ``lost`` is as in :class:`.Renounced`."""
    renounce(request, lost=lost)
    return (yield from return_all(exchange, request, exchange.dialect.timing.leaving))


def renounce(request: LeaseRequest, *, lost: bool = False) -> None:
    """Go on with another token, since the release of the old token may arrive late. ``lost`` is as
    in :class:`.Renounced`."""
    name, own = request.name, request.token
    request.unreturned += [Renounced(name, one, own, lost) for one in (own, request.group) if one]
    request.token, request.group = renounced(own), None


def return_all(
    exchange: Exchange, request: LeaseRequest, patience: float
) -> Procedure[DBLockError | None]:
    """Release the holds of renounced tokens whose releases have no reply yet; try for ``patience``
    seconds in all. Return the error that prevents it, if any."""
    unreturned, until = request.unreturned, exchange.now + patience
    prevented: DBLockError | None = None
    request.unreturned = []
    for one in unreturned:
        try:
            command = _ending(exchange.dialect, one.name, one.token, one.own)
            yield from exchange.ask(command, patience=until - exchange.now)
        except StatementError as failure:
            if one.lost or failure.fault in AWAY or (yield from _has(exchange, one.name, one.own)):
                prevented = exchange.explain(failure, harmless=True)
                request.unreturned.append(one)
    return prevented


def _ending(dialect: AbstractDialect, name: str, token: str, own: str) -> Command[int]:
    """Return the statement that ends the hold of ``token``. If readers share it, only the reader
    with the token ``own`` leaves."""
    if is_shared(token):
        return LeaveReaders(name, token, own)
    return _passing_on(dialect, name, token)


def _passing_on(
    dialect: AbstractDialect, name: str, token: str, *, passes: bool = True
) -> Command[int]:
    """Return the command that frees a name, and lets the first waiter know where it can be."""
    return PassOn(name, token, passes) if dialect.traits.can_notify else Release(name, token)


def abandon(
    exchange: Exchange,
    request: LeaseRequest,
    orphaned: list[Command[bool]],
    find: Find = look,
) -> Procedure[None]:
    """Release the name that a cancelled acquire was granted, or may still be granted.

    ``orphaned`` has the queries that end the sessions in which its last try may still run; these
    sessions are ended first. ``find`` reads the row that was granted; a semaphore finds the slot.
    It tries until the deadline, so the exchange has a ``wait``.
    """
    try:
        while orphaned:
            yield from end_session(exchange, orphaned[-1])
            orphaned.pop()
    except StatementError as failure:
        yield Disown(tuple(request.tickets))
        raise exchange.explain(failure, harmless=True) from failure.__cause__
    yield from leave(exchange, request)
    while True:
        state = yield from find(exchange)
        if state is None or state.token is None or request.token not in state.members:
            return
        command = _ending(exchange.dialect, state.name, state.token, request.token)
        reply = yield from exchange.ask(command)
        if reply.answer == 1 or exchange.over:
            return
        exchange.now = (yield Sleep(PAUSE)).now  # its row was in use


def release(exchange: Exchange, request: ReleaseRequest) -> Procedure[None]:
    """Release the lease, and the user lock if it has one. Raises LockLost when it was not held.

    The token belongs to this one grant, so repeating a release whose reply was lost cannot touch a
    later hold. If the repeated release finds that the hold is over, the lost one has ended it. The
    same is true if an earlier release is ``in_doubt``. The timeout counts from the first failure.
    """
    name, token, held, reader, with_user_lock, guarded, in_doubt = request
    contended, dialect = held is not None and held.contended, exchange.dialect
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
            if failure.fault not in AGAIN:
                # Not in a variable, which the error's traceback would keep, and with it the handle.
                raise (
                    unknown(failure, name) if in_doubt else exchange.explain(failure)
                ) from failure.__cause__
            exchange.now = (yield Sleep(PAUSE)).now
            until = exchange.now + exchange.timeout if until is None else until
            if failure.end is not None:  # the lost session may have the row locked
                left = until - exchange.now
                with contextlib.suppress(StatementError):
                    yield from end_session(exchange, failure.end, patience=left)
            if exchange.now >= until:
                if in_doubt:
                    raise unknown(failure, name) from failure.__cause__
                if failure.fault is Fault.BUSY:
                    raise _in_use(name) from failure.__cause__
                raise exchange.explain(failure) from failure.__cause__
            continue
        exchange.now = reply.now
        if reply.answer == 1:
            return
        if dialect.traits.can_notify and not contended and reader is None:
            contended = True
            continue
        proof = token if reader is None or held is not None else reader
        loss = yield from why_lost(exchange, proof, held)
        if loss is not None:
            if in_doubt:
                return  # the try whose reply was lost has released it
            raise loss
        if reader is not None and held is not None:
            return  # others share it; only an earlier try can have removed this reader
        until = exchange.now + exchange.timeout if until is None else until
        if exchange.now >= until:
            raise unknown("its row is in use", name) if in_doubt else _in_use(name)
        exchange.now = (yield Sleep(PAUSE)).now


def _in_use(name: str) -> Unavailable:
    return Unavailable(
        f"{name!r} could not be released, because its row is in use; it expires by itself",
        name=name,
    )


def force(exchange: Exchange, fence: int | None) -> Procedure[bool]:
    """Free the name of its holder; False when it has none. Raises StaleFence if the hold has
    another fence than ``fence``.

    Every try carries the token of the hold that was read first. So a try can be repeated after a
    lost reply without touching the next hold.
    """
    state, until = (yield from look(exchange)), exchange.start + exchange.timeout
    if state is None or state.token is None:
        return False
    name = state.name
    if fence is not None and state.fence != fence:
        raise StaleFence(
            f"{name!r} was not released: the hold with fence {fence} is over, and it is now "
            f"{state.told().describe()} (fence {state.fence})",
            name=name,
            fence=fence,
            newest=state.fence,
        )
    token = state.token
    command = _passing_on(exchange.dialect, name, token, passes=False)
    while state is not None and state.token == token:
        try:
            reply = yield from exchange.ask(command)
        except StatementError as failure:
            raise exchange.explain(failure) from failure.__cause__
        if reply.answer == 1:
            break
        if exchange.now >= until:
            raise Unavailable(f"{name!r} could not be freed, because its row is in use", name=name)
        exchange.now = (yield Sleep(PAUSE)).now
        state = yield from look(exchange)
    return True
