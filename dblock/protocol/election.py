"""Elections: the leader is the holder of the name's lease, and publishes a value to observers.

An election has no state besides the lease and the value. The value is written under the token and
the fence of the hold, and counts for as long as the hold lasts.

::

    observe:  read ── the leader or its value changed ─────────────> the new one
               ^      └── no change: wait for a notification, the term's end, or an interval
               └───────────────────────────────────────────────┘

An observer listens first and reads then, so it misses no change in between. A change without a
notification (an expiry, or a notification that was lost) it finds when it polls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from .commands import CallObservers, LookAtSlots, ReadLeader, WriteValue
from .epoch import failed_over
from .explain import explain
from .faults import StatementError
from .inspect import expired, why_lost
from .lease import Held
from .retry import AWAY, PASSING, retry, retry_or_raise
from .steps import ANY_SERVER, Procedure, Reply, Sleep, WaitNotification, WaitTurn
from .writing import write

if TYPE_CHECKING:
    from ..lock_state import Leader
    from .doubt import Doubt
    from .statements import Statements

# Seconds: the shortest interval between two polls. Clocks are rounded, so a term that should have
# ended may still last for a moment.
SOON = 0.005

#: The state that an observer has seen: the leader's fence and value as text; None without a leader.
Seen = tuple[int, str] | None
#: The value before the first read, which is equal to no leader's.
UNSEEN: Seen = (-1, "")


def proclaim(
    dialect: Statements,
    name: str,
    token: str,
    held: Callable[[], Held],
    value: str,
    before: Doubt,
    patience: float,
    now: float,
) -> Procedure[None]:
    """Write the value of a hold; earlier values ``before`` can no longer arrive after this one.

    ``held`` returns the present state of the hold. Raises LockLost if the hold is over, and
    ValueError if the name is a semaphore's; OutcomeUnknown and Unavailable as :func:`.write` does.
    """
    fence, term = held().fence, held().term
    if term.over(now):
        raise expired(name)
    command = WriteValue(name, token, fence, value)
    patience = min(patience, term.remaining(now))
    reply = yield from write(dialect, command, name, before, patience, now)
    if held().elsewhere(reply.server):
        raise failed_over(name)
    if not reply.answer:
        loss = yield from why_lost(dialect, name, token, held(), reply.now)
        if loss is None:
            yield from _refuse_semaphore(dialect, name, patience, reply.now)
        raise loss or expired(name)


def _refuse_semaphore(
    dialect: Statements, name: str, patience: float, now: float
) -> Procedure[None]:
    """Raise ValueError if the name is a semaphore's or a rate limit's, which no value may
    replace."""
    look = LookAtSlots(name, 0)
    reply = yield from retry_or_raise(dialect, look, name, patience, now)
    limit = reply.answer.limit
    if limit:
        used = "semaphore" if limit > 0 else "rate limit"
        raise ValueError(f"{name!r} is the name of a {used}: choose another name for the election")


def call(dialect: Statements, name: str, patience: float, now: float) -> Procedure[None]:
    """Notify the observers of a name, if the database can notify."""
    if dialect.can_notify:
        command = CallObservers(name)
        try:
            yield from retry(command, patience, now, AWAY | PASSING)
        except StatementError as failure:
            raise explain(dialect, failure, name, harmless=True) from failure.__cause__


def leader(dialect: Statements, name: str, patience: float, now: float) -> Procedure[Leader | None]:
    """Read the present leader."""
    return (yield from _look(dialect, name, patience, now)).answer


def _look(
    dialect: Statements, name: str, patience: float, now: float
) -> Procedure[Reply[Leader | None]]:
    return retry_or_raise(dialect, ReadLeader(name), name, patience, now)


def seen(leader: Leader | None) -> Seen:
    """Return the parts of a leader whose change is news: its fence and its value."""
    return None if leader is None else (leader.fence, repr(leader.value))


def observe(
    dialect: Statements,
    name: str,
    before: Seen,
    interval: float,
    line: Hashable,
    patience: float,
    now: float,
) -> Procedure[Leader | None]:
    """Wait until the leader or its value differs from ``before``; return the leader.

    ``line`` is a local queue of the observer's own. Without notifications the observer polls at
    intervals of ``interval`` seconds.
    """
    topic = dialect.topic(name) if dialect.can_notify else None
    server: str | None = ANY_SERVER
    while True:
        called = False
        if topic is not None:
            reply = yield WaitTurn(line, 0.0, server, look=False, topic=topic)
            called = reply.answer.told
            now = reply.now
        reply = yield from _look(dialect, name, patience, now)
        found: Leader | None = reply.answer
        if seen(found) != before:
            return found
        now = reply.now
        if not called and topic is not None and server != reply.server:
            server = reply.server
            if server is not None:
                continue  # this server can notify: listen, and read again
        rest = max(interval, dialect.timing.observe) if called else interval
        if found is not None:
            rest = min(rest, max(SOON, found.remaining))
        now = (yield WaitNotification(rest) if called else Sleep(rest)).now
