"""Waiting on PostgreSQL: in the name's queue, until a release passes the name on.

::

    join ── wait for a notification ── the name is ours ──────────────> believe
              ^      ├── the name is free: the holder was guarded ────> ask
              └──────┴── no notification came: poll

The release grants the name to the first waiter and notifies that waiter alone. The grant's first
term is :data:`.FIRST_TERM`; the waiter's first renewal extends it to the TTL. A waiter that does
not answer costs the others that term: the second waiter has polled by then, and knows the expiry.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..lease import Held
from ..state import Passed
from ..steps import ANY_SERVER, Procedure, WaitNotification
from .polling import Polling

# In seconds: a waiter that waits for a notification polls at longer intervals than the second
# waiter, by POLL_MORE for each position further back. Up to POLL_JITTER is added at random.
POLL_MORE, POLL_JITTER = 0.5, 0.2


@dataclass(eq=False)
class Queueing(Polling):
    """Waits for a notification. Behind a pooler, or without a connection to listen on, it polls."""

    passed: Passed | None = field(default=None, init=False)

    def server(self) -> str | None:
        return ANY_SERVER if self.number == 0 else self.attempt.server

    def ask(self) -> Procedure[Held | None]:
        if self.passed is None:
            return self._ask()
        passed, self.passed = self.passed, None
        return self.attempt.believe(passed, self.turn.ticket)

    def sleep(self, sleep: float) -> Procedure[bool]:
        position = self.attempt.seen.position
        if not self.turn.listens or position.ahead is None or position.free:
            # If it is our turn and the server refused us, a row lock is in the way: its end sends
            # no notification.
            return (yield from super().sleep(sleep))
        reply = yield from self.waiter.wait(
            WaitNotification, self._until_poll(sleep), self.exchange.now
        )
        self.exchange.now = reply.now
        if isinstance(reply.answer, Passed):
            self.passed = reply.answer
        return bool(reply.answer)

    def _until_poll(self, sleep: float) -> float:
        """Return the seconds until the next poll: until our turn may come without notification."""
        if self.options.policy.endless:
            state, ahead = self.attempt.seen.state, self.attempt.seen.position.ahead or 0
            timing = self.exchange.dialect.timing
            poll = min(timing.poll + POLL_MORE * max(0, ahead - 1), timing.poll_max)
            sleep = poll + min(sleep, POLL_JITTER)
            if state is not None and state.remaining is not None:
                # The waiters before this one may have died by the expiry. So this one polls one
                # grace after it (at the expiry, if it is first); once the expiry has passed, one
                # grace for each waiter before it.
                places = ahead if state.remaining < 0 else min(ahead, 1)
                turn = state.remaining + places * self.exchange.dialect.grace
                sleep = min(sleep, max(0.001, turn))
        return self.exchange.capped(sleep)
