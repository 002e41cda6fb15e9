"""Waiting without notifications: the waiter joins the name's queue and polls.

::

    stand ── the first of this process ── join ── sleep ── poll ── our turn ───────> ask
                                           ^        ^        ├── still others ── (sleep)
                                           └────────┴────────┴── not in it any more

Only the first of a process's waiters for one name joins the database's queue. A free name is
reserved for the first waiter in the queue for :attr:`.Timing.grace` seconds. Then the second may
take it, another grace later the third, and so on; so a dead waiter delays the others only briefly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ..attempt import Ask, Attempt
from ..exchange import Exchange
from ..lease import Held
from ..steps import Procedure, Sleep, Turn, WaitTurn

if TYPE_CHECKING:
    from ...policy import RetryPolicy
    from ..waiters import Waiter

# POLL_SHARE: the first waiter in the queue sleeps this share of the policy's sleep, the second
# twice the share, and so on. POLL_MIN, in seconds: the first waiter's longest sleep while the queue
# moves; each poll that finds its position unchanged doubles this.
POLL_SHARE, POLL_MIN = 0.05, 0.001
# Seconds of polling after which every waiter joins the queue, so that no waiter starves.
TIRED = 0.02
_BEHIND = Turn(first=False)


class WaitOptions(NamedTuple):
    """How a caller waits if it has to.

    ``line`` is the key of this process's local queue. ``waiter`` makes the entry in the table of
    waiters; it is called only if the caller has to wait. ``fair`` keeps the order of arrival on
    every database. ``in_server`` says that a connection for a wait in the server may be available.
    """

    policy: RetryPolicy
    line: Hashable
    waiter: Callable[[], Waiter]
    fair: bool = False
    in_server: bool = False


@dataclass(eq=False)
class Polling:
    """One wait for a name: the base class of the waiting strategies, which itself polls."""

    attempt: Attempt
    exchange: Exchange
    options: WaitOptions
    waiter: Waiter
    #: Callers waited for the name a moment ago, so the strategy may wait before it asks.
    hot: bool
    #: The number of tries and polls so far.
    number: int
    turn: Turn = field(default=Turn(), init=False)
    #: The next ask only completes the last one by joining the queue; it does not count as a try.
    joins: bool = field(default=False, init=False)
    #: How many polls in a row found the same position in the queue.
    stuck: int = field(default=0, init=False)

    def begin(self) -> Procedure[bool]:
        """Wait for the first position in the local queue; read the name, and return False, if the
        deadline passes.

        If this process is already listening for notifications, the first try joins the database's
        queue.
        """
        if not self.options.policy.endless:  # the policy counts tries, so the waiter makes them
            yield from self.stand(0.0)
            return True
        while True:
            alarmed = yield from self.stand(self.exchange.left)
            if self.turn.first:
                return True
            # After an alarm the database is away. Each waiter finds that out now, not one after
            # the other.
            yield from self.attempt.look(None)
            if not alarmed:
                return False

    def ask(self) -> Procedure[Held | None]:
        """Ask for the name."""
        return self._ask()

    def _ask(self, ask: Ask | None = None) -> Procedure[Held | None]:
        """Ask as :meth:`.Attempt.run` does, and count the try."""
        self.number += not self.joins
        self.joins = False
        return self.attempt.run(self.turn.ticket, ask)

    def rest(self) -> Procedure[bool]:
        """Wait until another try makes sense; False to give up."""
        while True:
            if not self.exchange.over:
                yield from self.stand(0.0)
            self.joins = self.joins or self.attempt.after_refusal == "joining"
            if self.joins or self.ready():
                return True
            share, most = self.poll_interval()
            sleep = self.options.policy.sleep_after(
                self.attempt.request.name,
                self.number,
                self.exchange.elapsed,
                self.exchange.left,
                share=share,
                most=most,
            )
            if sleep is None:
                return False
            if (yield from self.pause(sleep)):
                return True
            # A waiter polls, which takes no lock, and asks only when the name seems free.
            ahead = self.attempt.seen.position.ahead
            yield from self.attempt.look(self.turn.ticket)
            position = self.attempt.seen.position
            self.stuck = self.stuck + 1 if position.ahead == ahead else 0
            self.joins = self.turn.ticket is not None and position.ahead is None
            if self.joins and self.attempt.yields:
                self.number += 1  # a reader without a position asks at growing intervals
            if self.attempt.promising or self.joins:
                return True
            self.number += 1

    # --- what the other strategies override --------------------------------------------------

    def ready(self) -> bool:
        """Whether to ask again without a sleep."""
        return False

    def queues(self) -> bool:
        """Whether to join the database's queue at all."""
        return True

    def pause(self, sleep: float) -> Procedure[bool]:
        """Sleep ``sleep`` seconds; return whether to ask at once, without a poll."""
        return self.sleep(sleep) if self.turn.first else self._pause_behind(sleep)

    def _pause_behind(self, sleep: float) -> Procedure[bool]:
        """As :meth:`pause`, for a waiter that is not the first in the local queue."""
        until = self.exchange.now + sleep
        yield from self.stand(sleep)
        return self.joins or (yield from self.sleep(max(0.0, until - self.exchange.now)))

    def sleep(self, sleep: float) -> Procedure[bool]:
        """As :meth:`pause`, for the first waiter in the local queue."""
        state, closed = self.attempt.seen.state, self.attempt.closed
        if state is not None and state.held and state.remaining is not None:
            sleep = min(sleep, state.remaining)
        if closed:
            sleep = self.exchange.capped(closed)
        self.exchange.now = (yield from self.waiter.wait(Sleep, sleep, self.exchange.now)).now
        return False

    def poll_interval(self) -> tuple[float, float]:
        """Return the share of the policy's sleep to sleep, and the longest sleep in seconds.

        The interval stays short, since a free name is reserved for the first waiter only for a
        moment.
        """
        position, listens = self.attempt.seen.position, self.turn.listens
        if position.ahead is None or position.free or listens or not self.options.policy.endless:
            return 1.0, inf
        # When the first reader is granted the name, all readers before this one join it at once.
        behind = min(1 + position.ahead, self.attempt.in_step)
        most = min(POLL_MIN * 2 ** min(self.stuck, 10), self.exchange.dialect.grace / 2)
        return min(1.0, POLL_SHARE * behind) if self.options.fair else 1.0, most * behind

    @property
    def _among_readers(self) -> bool:
        """Whether this is a writer that waits for a name which readers use."""
        state = self.attempt.seen.state
        return state is not None and state.shared and not self.attempt.request.shares

    # --- this process ------------------------------------------------------------------------

    def server(self) -> str | None:
        """The server that notifies waiters; None if it is unknown, or if it cannot notify."""
        return None

    def stand(self, seconds: float | None) -> Procedure[bool]:
        """Wait up to ``seconds`` for the first position in this process's local queue.

        The waiter at the first position gets a ticket. With a new ticket it has to join the
        database's queue. Return whether another waiter found that the database is away.
        """
        tired = self.exchange.elapsed >= TIRED and self.options.policy.usual and self.queues()
        look = tired or (self.options.fair and self.number > 0)
        if look and self._among_readers and self.server() is None:
            # Readers go past a waiter that is not registered: they take it for dead.
            self.exchange.now = yield from self.waiter.stand_out(self.exchange.now)
            look = self.waiter.seen
        stand = partial(WaitTurn, self.options.line, server=self.server(), look=look)
        reply = yield from self.waiter.wait(stand, seconds, self.exchange.now)
        self.exchange.now = reply.now
        turn: Turn = reply.answer or _BEHIND
        if turn.ticket is not None and turn.ticket != self.turn.ticket:
            self.joins = True
        self.turn = turn
        return turn.alarmed


#: The type of a waiting strategy. :func:`.acquire` calls its ``begin``, ``ask`` and ``rest``.
Waiting = Polling
