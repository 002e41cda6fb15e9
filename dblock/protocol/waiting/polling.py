"""Waiting where nobody is told: in the name's queue, looking now and then.

::

    stand ── the first of this process ── join ── sleep ── look ── our turn ───────> ask
                                           ^        ^        ├── still others ── (sleep)
                                           └────────┴────────┴── not in it any more

Of a process's waiters for one name only the first stands in the database. A free name is kept for
the first in the queue for a moment, :attr:`.Timing.grace`. Then the second may take it, a moment
later the third, and so on; so a waiter that has died stops nobody for long.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ..attempt import Ask, Attempt
from ..deadline import Deadline
from ..lease import Held
from ..steps import Procedure, Sleep, WaitTurn

if TYPE_CHECKING:
    from ...policy import RetryPolicy
    from ..waiters import Waiter

# Of the policy's sleep, for the first in the queue; the second sleeps twice that. And no more, in
# seconds, while the queue moves; twice that for each look that shows it does not.
POLL_SHARE, POLL_MIN = 0.05, 0.001
# After so many seconds of looking everybody stands in the queue, so that nobody is left behind.
TIRED = 0.02


class Turn(NamedTuple):
    """Where a waiter is among those of its process who wait like it, for one name.

    The ``first`` of them has a ``ticket``, if there is one to be had; ``told`` says that who stands
    in the database's queue with it is told of its turn.
    """

    first: bool = True
    ticket: str | None = None
    told: bool = False


@dataclass(eq=False)
class Polling:
    """One wait for a name. The others are made of it."""

    attempt: Attempt
    policy: RetryPolicy
    waiter: Waiter
    line: Hashable
    fair: bool
    #: The name was waited for a moment ago, which is of use to who waits in another way first.
    hot: bool
    #: How often was asked, or looked.
    number: int
    turn: Turn = field(default=Turn(), init=False)
    #: The next time is no more than the rest of the last: it joins the queue.
    joins: bool = field(default=False, init=False)
    #: For how many looks the place in the queue has been the same.
    stuck: int = field(default=0, init=False)

    @property
    def deadline(self) -> Deadline:
        return self.attempt.deadline

    def begin(self) -> Procedure[bool]:
        """Wait until nobody else of this process waits like this; False if it takes too long.

        Where who waits can be told already, what is asked first joins the queue.
        """
        if not self.policy.endless:  # its tries are counted, so they are made
            yield from self.stand(0.0)
            return True
        while True:
            alarmed = yield from self.stand(self.deadline.left)
            if self.turn.first:
                return True
            if not alarmed:
                return False
            # Else one would be told after the other that the database is away, each in its turn.
            yield from self.attempt.look(None)

    def ask(self) -> Procedure[Held | None]:
        """Ask for the name."""
        return (yield from self._ask())

    def _ask(self, ask: Ask | None = None) -> Procedure[Held | None]:
        """Ask as :meth:`.Attempt.run` does, and count that."""
        self.number += not self.joins
        self.joins = False
        return (yield from self.attempt.run(self.turn.ticket, ask))

    def rest(self) -> Procedure[bool]:
        """Wait until it makes sense to ask again; False to give up."""
        while True:
            if not self.deadline.over:
                yield from self.stand(0.0)
            self.joins = self.joins or self.attempt.unseen
            if self.joins or self.ready():
                return True
            share, most = self.poll_interval()
            sleep = self.policy.sleep_after(
                self.attempt.request.name,
                self.number,
                self.deadline.elapsed,
                self.deadline.left,
                share=share,
                most=most,
            )
            if sleep is None:
                return False
            if (yield from self.pause(sleep)):
                return True
            # Who waits looks, which takes no lock, and asks when the name seems free.
            ahead = self.attempt.seen.position.ahead
            yield from self.attempt.look(self.turn.ticket)
            position = self.attempt.seen.position
            self.stuck = self.stuck + 1 if position.ahead == ahead else 0
            self.joins = self.turn.ticket is not None and position.ahead is None
            if self.joins and self.attempt.yields:
                self.number += 1  # a reader without a position asks more and more seldom
            if self.attempt.promising or self.joins:
                return True
            self.number += 1

    # --- what differs ------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether to ask again without having slept."""
        return False

    def queues(self) -> bool:
        """Whether to stand in the queue at all."""
        return True

    def pause(self, sleep: float) -> Procedure[bool]:
        """Let ``sleep`` seconds pass; return whether to ask at once, without a look."""
        until = self.deadline.now + sleep
        if not self.turn.first:
            yield from self.stand(sleep)
            sleep = max(0.0, until - self.deadline.now)
            if self.joins:
                return True
        return (yield from self.sleep(sleep))

    def sleep(self, sleep: float) -> Procedure[bool]:
        """As :meth:`pause`, for the first of this process."""
        state, closed = self.attempt.seen.state, self.attempt.closed
        if state is not None and state.held and state.remaining is not None:
            sleep = min(sleep, state.remaining)
        if closed:
            sleep = self.deadline.within(closed)
        self.deadline.now = (yield from self.waiter.wait(Sleep, sleep, self.deadline.now)).now
        return False

    def poll_interval(self) -> tuple[float, float]:
        """Return which share of the policy's sleep to sleep, and how many seconds at most.

        A free name is kept for the first in the queue for a moment only.
        """
        position = self.attempt.seen.position
        if position.ahead is None or position.free or self.turn.told or not self.policy.endless:
            return 1.0, inf
        # Readers before this one make way at once, each of them, when the first gets in.
        behind = min(1 + position.ahead, self.attempt.in_step)
        most = min(POLL_MIN * 2 ** min(self.stuck, 10), self.attempt.dialect.grace / 2)
        return min(1.0, POLL_SHARE * behind) if self.fair else 1.0, most * behind

    @property
    def _among_readers(self) -> bool:
        """Whether it wants a name for itself that readers want too."""
        state = self.attempt.seen.state
        return state is not None and state.shared and not self.attempt.request.shares

    # --- this process ------------------------------------------------------------------------

    def server(self) -> str | None:
        """The server that tells who waits; None where that is not known, or none does."""
        return None

    def stand(self, seconds: float | None) -> Procedure[bool]:
        """Wait for the first place of those in this process who wait like this, for one name.

        Whoever has it gets a ticket, for the first time or a new one, and has to join with that.
        Return whether somebody has found that the database is away.
        """
        tired = self.deadline.elapsed >= TIRED and self.policy.usual and self.queues()
        look = tired or (self.fair and self.number > 0)
        if look and self._among_readers and self.server() is None:
            # Readers go past the place of one who is not seen: it has died.
            self.deadline.now = yield from self.waiter.stand_out(self.deadline.now)
            look = self.waiter.seen
        stand = partial(WaitTurn, self.line, server=self.server(), look=look)
        reply = yield from self.waiter.wait(stand, seconds, self.deadline.now)
        self.deadline.now = reply.now
        ticket, told = reply.rows[0] if reply.rows else (None, False)
        if ticket is not None and ticket != self.turn.ticket:
            self.joins = True
        self.turn = Turn(bool(reply.rows), ticket, told)
        return bool(reply.matched)


#: What :func:`.acquire` needs of a way to wait: ``begin``, ``ask`` and ``rest``.
Waiting = Polling
