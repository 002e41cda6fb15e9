"""Elections: a leader is who holds the name's lease, and tells others what it wants to.

There is no state here but the lease's own. A value is written under the token and the fence of the
hold, and counts for as long as that does.

::

    observe:  look ── another than before ─────────────────────────> that
               ^      └── the same: wait to be called, until the term is over, or for a while
               └──────────────────────────────────────────────┘

Who observes listens first and looks then, so it misses nothing that it is not called for. What it
is not called for (an expiry, a call that was lost) it finds when it looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

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

# Seconds between two looks at least: clocks are rounded, and a term that is over may not be yet.
SOON = 0.005

#: What an observer has seen: a term and its value as text, or that nobody leads.
Seen = tuple[int, str] | None
#: Before it has looked: neither.
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
    """Write the value of a hold, which ``held`` tells as it is now, after those ``before``.

    Raises LockLost if the hold is over, and ValueError if the name is a semaphore's; OutcomeUnknown
    and Unavailable as :func:`.write` does.
    """
    fence, term = held().fence, held().term
    if term.over(now):
        raise expired(name)
    query = dialect.write_value(name, token, fence, value)
    patience = min(patience, term.remaining(now))
    reply = yield from write(dialect, query, name, before, patience, now)
    if held().elsewhere(reply.server):
        raise failed_over(name)
    if not query.read(reply):
        loss = yield from why_lost(dialect, name, token, held(), reply.now)
        if loss is None:
            yield from _refuse_semaphore(dialect, name, patience, reply.now)
        raise loss or expired(name)


def _refuse_semaphore(
    dialect: Statements, name: str, patience: float, now: float
) -> Procedure[None]:
    """Raise ValueError if a name has the limit of a semaphore, which no value replaces."""
    look = dialect.look_at_slots(name, 0)
    reply = yield from retry_or_raise(dialect, look, name, patience, now)
    if look.read(reply).limit:
        raise ValueError(
            f"{name!r} is the name of a semaphore: choose another name for the election"
        )


def call(dialect: Statements, name: str, patience: float, now: float) -> Procedure[None]:
    """Call those who observe a name, where they are called."""
    if dialect.can_notify:
        query = dialect.call_observers(name)
        try:
            yield from retry(query, patience, now, AWAY | PASSING)
        except StatementError as failure:
            raise explain(dialect, failure, name, harmless=True) from failure.__cause__


def leader(dialect: Statements, name: str, patience: float, now: float) -> Procedure[Leader | None]:
    """Read who leads."""
    found, _ = yield from _look(dialect, name, patience, now)
    return found


def _look(
    dialect: Statements, name: str, patience: float, now: float
) -> Procedure[tuple[Leader | None, Reply]]:
    query = dialect.leader(name)
    reply = yield from retry_or_raise(dialect, query, name, patience, now)
    return query.read(reply), reply


def seen(leader: Leader | None) -> Seen:
    """Return what of a leader is news when it changes: which term it is, and its value."""
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
    """Wait until what is to be seen of a leader is not what was ``before``; return the leader.

    ``line`` is the observer's own. Where it is not called it looks after each ``interval``.
    """
    topic = dialect.topic(name) if dialect.can_notify else None
    server: str | None = ANY_SERVER
    while True:
        called = False
        if topic is not None:
            reply = yield WaitTurn(line, 0.0, server, look=False, topic=topic)
            ((_, called),) = reply.rows
            now = reply.now
        found, reply = yield from _look(dialect, name, patience, now)
        if seen(found) != before:
            return found
        now = reply.now
        if not called and topic is not None and server != reply.server:
            server = reply.server
            if server is not None:
                continue  # it calls: listen, and look again
        rest = max(interval, dialect.timing.observe) if called else interval
        if found is not None:
            rest = min(rest, max(SOON, found.remaining))
        now = (yield WaitNotification(rest) if called else Sleep(rest)).now
