"""Waiting on PostgreSQL: in the name's queue, until a release passes the name on.

::

    join ── wait to be told ── the name is ours ──────────────> believe
              ^      ├── it is free: the holder was guarded ──> ask
              └──────┴── nothing was heard: look

The release makes the name the first waiter's and tells it alone: with a first term of
:data:`.FIRST_TERM`, which the first renewal makes as long as was asked. Who does not answer costs
the others that term: the second has looked by then, and knows when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..lease import Held
from ..state import Passed
from ..steps import ANY_SERVER, Procedure, WaitNotification
from .polling import Polling

# Between two looks of one who waits to be told: so many seconds more for each one before the one
# before it, and up to so many more by chance.
POLL_MORE, POLL_JITTER = 0.5, 0.2


@dataclass(eq=False)
class Queueing(Polling):
    """Where nobody can tell, behind a pooler or while there is no connection for it, it polls."""

    passed: Passed | None = field(default=None, init=False)

    def server(self) -> str | None:
        return ANY_SERVER if self.number == 0 else self.attempt.server

    def ask(self) -> Procedure[Held | None]:
        if self.passed is None:
            return (yield from super().ask())
        passed, self.passed = self.passed, None
        return (yield from self.attempt.believe(passed, self.turn.ticket))

    def sleep(self, sleep: float) -> Procedure[bool]:
        position = self.attempt.seen.position
        if not self.turn.told or position.ahead is None or position.free:
            # Where it is our turn and we were refused, a row lock is in the way: nobody tells then.
            return (yield from super().sleep(sleep))
        reply = yield from self.waiter.wait(
            WaitNotification, self._until_poll(sleep), self.deadline.now
        )
        self.deadline.now = reply.now
        if reply.rows:
            self.passed = Passed(*reply.rows[0])
        return bool(reply.matched)

    def _until_poll(self, sleep: float) -> float:
        """Return how long to wait before looking: until it may be our turn anyway."""
        if self.policy.endless:
            state, ahead = self.attempt.seen.state, self.attempt.seen.position.ahead or 0
            timing = self.attempt.dialect.timing
            poll = min(timing.poll + POLL_MORE * max(0, ahead - 1), timing.poll_max)
            sleep = poll + min(sleep, POLL_JITTER)
            if state is not None and state.remaining is not None:
                # By then those before may have died, so all but the first look after a moment.
                places = ahead if state.remaining < 0 else min(ahead, 1)
                turn = state.remaining + places * self.attempt.dialect.grace
                sleep = min(sleep, max(0.001, turn))
        return self.deadline.within(sleep)
