"""A waiter that others can see: who waits for what since when, and what it holds meanwhile.

Written only where somebody has waited for a moment already, so that contention which passes costs
nothing; and by one of a process's waiters for a name, if they hold nothing. One that holds
something is seen in any case, and looks whether it waits for itself over others.

Who waits longest need not look often: a cycle is closed by the one who begins to wait last.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import DBLockError, DeadlockDetected, OutcomeUnknown, QueryTimeout, Unavailable
from ..lock_state import printable
from .deadlock import Blocked, find_cycle
from .faults import Fault, StatementError
from .retry import AWAY, PASSING, retry
from .steps import Execute, Procedure, Reply, Sleep, Step

if TYPE_CHECKING:
    from .statements import Statements

T = TypeVar("T")

# Between two looks of one who holds something: that share of its waiting so far.
LOOK_SHARE = 0.5
# Between two signs of life of one who holds nothing; and how late any sign of life may be.
SIGN, LATE = 20.0, 5.0
# How long to try to leave no trace where others are in the way.
LEAVING = 0.5

# After these it cannot be seen at all.
NEVER = frozenset({Fault.SCHEMA, Fault.PRIVILEGE})


def _answered(error: DBLockError) -> bool:
    """Whether it was the server that gave a statement up, so that it can be asked another."""
    return isinstance(error, QueryTimeout) or isinstance(error.__cause__, QueryTimeout)


class Caller(NamedTuple):
    """Who waits, as its process knows it."""

    #: Who it is, for people.
    owner: Callable[[], str]
    #: What it holds meanwhile: names, and fences where they are leases.
    holds: Callable[[], Mapping[str, int | None]]
    new_id: Callable[[], str]
    #: Those of this process that are seen although they hold nothing.
    seen: dict[object, Waiter]


@dataclass(slots=True)
class Waiter:
    """One wait of one caller for one name. Its methods are parts of procedures."""

    dialect: Statements
    name: str
    strategy: str
    start: float
    caller: Caller
    id: str | None = None
    _next: float | None = None
    _seen_as: object = None
    #: It is seen by itself, whoever else of its process waits like it.
    _stands_out: bool = False

    @property
    def next(self) -> float:
        """When there is something to be done for it."""
        if self._next is None:
            timing = self.dialect.timing
            first = timing.look if self.caller.holds() else timing.visible_after
            self._next = self.start + first
        return self._next

    @property
    def seen(self) -> bool:
        """Whether it is seen by itself, or cannot be."""
        return self.id is not None or self._next == math.inf

    def stand_out(self, now: float) -> Procedure[float]:
        """Be seen by itself from now on; return the time. :attr:`seen` tells what became of it."""
        if not self.seen:
            self._stands_out, self._next = True, now
        return (yield from self.note(now))

    def wait(
        self, step: Callable[[float], Step], seconds: float | None, now: float
    ) -> Procedure[Reply]:
        """Let ``seconds`` pass with a step, or less if it has a reply before: in pieces, between
        which this waiter is seen to.

        Raises DeadlockDetected.
        """
        until = None if seconds is None else now + seconds
        while True:
            now = yield from self.note(now)
            reply = yield step(self.piece(None if until is None else until - now, now))
            now = reply.now
            if reply.matched or reply.rows or (until is not None and now >= until):
                return reply

    def piece(self, seconds: float | None, now: float) -> float:
        """Return how much of ``seconds`` may pass before there is something to be done."""
        left = max(0.001, self.next - now)
        return left if seconds is None else max(0.0, min(seconds, left))

    def note(self, now: float) -> Procedure[float]:
        """See to it that others see this waiter; return the time.

        Raises DeadlockDetected when the wait would never end.
        """
        if now < self.next:
            return now
        timing, holds = self.dialect.timing, self.caller.holds()
        if not holds and not self._stands_out and not self._is_seen():
            self._next = now + timing.look_max
            return now
        waited = now - self.start
        look = min(max(timing.look, LOOK_SHARE * waited), timing.look_max) if holds else SIGN
        if holds and self.strategy == "row" and waited > 2 * timing.look:
            look = timing.look_max  # each look is at the cost of the place in the server's queue
        self._next = now + look
        try:
            now = (yield from self._write(look + LATE, holds, now)).now
            if holds:
                query = self.dialect.blocked()
                reply = yield Execute(query)
                now = reply.now
                self._judge(query.read(reply))
        except StatementError as failure:
            # Nobody is refused a lock because it cannot be seen waiting.
            now = (yield Sleep(0)).now  # the try itself took its time
            away = failure.fault in AWAY
            self._next = now + (timing.look_max if away else min(look, timing.look))
            if failure.fault in NEVER:
                self._next = math.inf
        return now

    def _write(self, lasts: float, holds: Mapping[str, int | None], now: float) -> Procedure[Reply]:
        first = self.id is None
        if self.id is None:
            self.id = self.caller.new_id()
        query = self.dialect.register(
            self.id,
            self.name,
            strategy=self.strategy,
            owner=self.caller.owner(),
            waited=now - self.start,
            lasts=lasts,
            holds=holds,
        )
        try:
            reply = yield Execute(query)
        except StatementError as failure:
            if first and failure.fault is not Fault.DISCONNECTED:
                self.id = None  # nothing was written
            raise
        if first:
            reply = yield Execute(self.dialect.sweep())
        return reply

    def _judge(self, blocked: list[Blocked]) -> None:
        assert self.id is not None
        cycle = find_cycle(blocked, self.id)
        if cycle is None:
            return
        held = ", ".join(
            f"{waiter.name!r} is held by {printable(holder.owner)}, who waits for {holder.name!r}"
            for waiter, holder in pairwise(cycle)
        )
        raise DeadlockDetected(
            f"waiting for {self.name!r} would never end: {held}, which is held here. Release what "
            "you hold, or roll it back, and begin again",
            name=self.name,
            cycle=tuple((one.name, one.owner) for one in cycle),
        )

    @property
    def trace(self) -> bool:
        """Whether there is anything to be removed."""
        return self.id is not None or self._seen_as is not None

    def leave(self) -> Procedure[None]:
        """Leave no trace. What cannot be removed is ignored when its time is over."""
        self._let_another_be_seen()
        if self.id is not None:
            query, self.id, self._next = self.dialect.unregister(self.id), None, None
            now = (yield Sleep(0)).now
            with contextlib.suppress(StatementError):
                yield from retry(query, LEAVING, now, PASSING | {Fault.DISCONNECTED})

    def during(self, waiting: Procedure[T]) -> Procedure[T]:
        """Run a procedure that waits, and leave no trace of that if it fails.

        If not, that is for its caller to do, who may hold the lock by then.
        """
        try:
            return (yield from waiting)
        except DBLockError as error:
            if isinstance(error, Unavailable | OutcomeUnknown) and not _answered(error):
                self._let_another_be_seen()  # the database is away
                raise
            yield from self.leave()
            raise

    def _is_seen(self) -> bool:
        """Whether this is the one, of those like it in this process, that others see."""
        key = self.name, self.strategy, self.caller.owner()
        if self.caller.seen.setdefault(key, self) is not self:
            return False
        self._seen_as = key
        return True

    def _let_another_be_seen(self) -> None:
        if self._seen_as is not None:
            self.caller.seen.pop(self._seen_as, None)
            self._seen_as = None
