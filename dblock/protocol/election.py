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
from .exchange import Exchange
from .inspect import expired, why_lost
from .lease import Held
from .steps import ANY_SERVER, Procedure, Reply, Sleep, WaitNotification, WaitTurn
from .writing import write

if TYPE_CHECKING:
    from ..lock_state import Leader
    from .doubt import Doubt
    from .state import LeaderRow

# Seconds: the shortest interval between two polls. Clocks are rounded, so a term that should have
# ended may still last for a moment.
SOON = 0.005

#: The state that an observer has seen: the leader's fence and value as text; None without a leader.
Seen = tuple[int, str] | None
#: The value before the first read, which is equal to no leader's.
UNSEEN: Seen = (-1, "")


def proclaim(
    exchange: Exchange, token: str, held: Callable[[], Held], value: str, before: Doubt
) -> Procedure[None]:
    """Write the value of a hold; earlier values ``before`` can no longer arrive after this one.

    ``held`` returns the present state of the hold. Raises LockLost if the hold is over, and
    ValueError if the name is a semaphore's; OutcomeUnknown and Unavailable as :func:`.write` does.
    """
    name, fence, term = exchange.name, held().fence, held().term
    if term.over(exchange.now):
        raise expired(name)
    command = WriteValue(name, token, fence, value)
    patience = min(exchange.timeout, term.remaining(exchange.now))
    reply = yield from write(exchange, command, before, patience=patience)
    if held().elsewhere(reply.server):
        raise failed_over(name)
    if not reply.answer:
        loss = yield from why_lost(exchange, token, held())
        if loss is None:
            yield from _refuse_semaphore(exchange, patience)
        raise loss or expired(name)


def _refuse_semaphore(exchange: Exchange, patience: float) -> Procedure[None]:
    """Raise ValueError if the name is a semaphore's or a rate limit's, which no value may
    replace."""
    reply = yield from exchange.ask_or_explain(LookAtSlots(exchange.name, 0), patience=patience)
    limit = reply.answer.limit
    if limit:
        used = "semaphore" if limit > 0 else "rate limit"
        raise ValueError(
            f"{exchange.name!r} is the name of a {used}: choose another name for the election"
        )


def call(exchange: Exchange) -> Procedure[None]:
    """Notify the observers of a name, if the database can notify."""
    if exchange.dialect.traits.can_notify:
        yield from exchange.ask_or_explain(CallObservers(exchange.name))


def leader(exchange: Exchange) -> Procedure[Leader | None]:
    """Read the present leader."""
    row = yield from look(exchange)
    return None if row is None else row.told()


def look(exchange: Exchange) -> Procedure[LeaderRow | None]:
    """Read the present holder, if any, and the value in the name's row."""
    return (yield from _look(exchange)).answer


def _look(exchange: Exchange) -> Procedure[Reply[LeaderRow | None]]:
    return exchange.ask_or_explain(ReadLeader(exchange.name))


def seen(leader: Leader | None) -> Seen:
    """Return the parts of a leader whose change is news: its fence and its value."""
    return None if leader is None else (leader.fence, repr(leader.value))


def observe(
    exchange: Exchange, before: Seen, interval: float, line: Hashable
) -> Procedure[Leader | None]:
    """Wait until the leader or its value differs from ``before``; return the leader.

    ``line`` is a local queue of the observer's own. Without notifications the observer polls at
    intervals of ``interval`` seconds.
    """
    dialect = exchange.dialect
    topic = dialect.topic(exchange.name) if dialect.traits.can_notify else None
    server: str | None = ANY_SERVER
    while True:
        called = False
        if topic is not None:
            reply = yield WaitTurn(line, 0.0, server, look=False, topic=topic)
            called = reply.answer.listens
            exchange.now = reply.now
        reply = yield from _look(exchange)
        found = None if reply.answer is None else reply.answer.told()
        if seen(found) != before:
            return found
        if not called and topic is not None and server != reply.server:
            server = reply.server
            if server is not None:
                continue  # this server can notify: listen, and read again
        rest = max(interval, dialect.timing.observe) if called else interval
        if found is not None:
            rest = min(rest, max(SOON, found.remaining))
        exchange.now = (yield WaitNotification(rest) if called else Sleep(rest)).now
