"""A client holds by its token alone, and asks again when it does not know what became of a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from dblock import DetachedHold, LockLost, NotAcquired, OutcomeUnknown, Unavailable
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME
from tests.simulation.thread import Thread

TOKEN, ANOTHER = "0123456789abcdef" * 2, "f" * 32
#: Seconds for which a client asks again, and for which another process waits.
PATIENCE = 40.0
UNSURE = (OutcomeUnknown, Unavailable)


@dataclass
class Remote:
    """What clients believe that hold by token. Their clocks go as the simulation's does."""

    #: Until when the holder of each token may act, and its fence.
    until: dict[str, float] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    #: When each token was released last: what was asked for before that is not believed.
    released: dict[str, float] = field(default_factory=dict)

    def take(self, me: Thread, token: str, ttl: float, wait: float) -> DetachedHold | None:
        """Take the name, again and again while nobody knows; None if another has it."""
        lease, start = me.locks.detached(NAME, token), me.loop.now
        me.ledger.remote.add(token)
        while True:
            asked = me.loop.now
            try:
                hold = lease.take(ttl, max(0.0, wait - (asked - start)))
            except UNSURE:
                me.ledger.unknowing.add(me.actor)
                if asked > start + PATIENCE:
                    return None
                me.work(0.2)
            except NotAcquired:
                me.note(f"is refused {NAME}")
                return None
            else:
                self.begin(me, token, hold, asked)
                return hold

    def begin(self, me: Thread, token: str, hold: DetachedHold, asked: float) -> None:
        """A client believes from now on that its token has the name."""
        me.note(f"has {NAME} {hold.fence} by token")
        if asked <= self.released.get(token, -math.inf):
            return
        until = asked + hold.expires_in
        lasts, before = until > me.loop.now, self.fences.get(token)
        others = [one for one in self.until if one != token and self.lasts(me, one)]
        others += map(str, me.beliefs.believed(NAME))
        if lasts and others:
            raise Violation(f"{me.name} has {NAME!r} by token, and {others} have it too")
        if before is not None and self.lasts(me, token) and hold.fence != before:
            raise Violation(f"one token has {NAME!r} twice: {before} and {hold.fence}")
        if lasts and hold.fence < max(self.fences.values(), default=0):
            raise Violation(f"a fence comes again: {hold.fence}")
        self.until[token], self.fences[token] = max(until, self.until.get(token, 0.0)), hold.fence

    def lasts(self, me: Thread, token: str) -> bool:
        return self.until.get(token, -math.inf) > me.loop.now

    def renew(self, me: Thread, token: str, ttl: float) -> None:
        asked = me.loop.now
        try:
            hold = me.locks.detached(NAME, token).renew(ttl)
        except LockLost as loss:
            me.note(f"is told: {loss.reason}")
            if me.allowance.quiet and self.lasts(me, token):
                raise Violation(f"{me.name} has lost {NAME!r}, for no reason: {loss}") from loss
            self.until.pop(token, None)
        else:
            self.until.pop(token, None)  # it may have been shortened
            self.begin(me, token, hold, asked)

    def release(self, me: Thread, token: str) -> None:
        self.until.pop(token, None)
        self.released[token] = math.inf
        try:
            me.locks.detached(NAME, token).release()
        except LockLost as loss:
            me.note(f"is told: {loss.reason}")
        finally:
            self.released[token] = me.loop.now

    def beside(self, me: Thread) -> None:
        """Another process takes the name as a lease."""
        lease = me.lease(NAME, ttl=6)
        with me.holding(lease, PATIENCE) as had:
            if had:
                if any(self.lasts(me, token) for token in self.until):
                    raise Violation(f"{me.name} has {NAME!r}, which a token has")
                me.work(0.05, lease)


def _work(remote: Remote, token: str, wait: float, ttl: float = 3.0) -> Callable[[Thread], None]:
    """Take, work, renew, work and release, as a client of a service does."""

    def work(me: Thread) -> None:
        if remote.take(me, token, ttl, wait) is None:
            return
        me.work(0.3)
        remote.renew(me, token, ttl)
        me.work(0.2)
        remote.release(me, token)

    return work


def by_token(clients: Clients) -> None:
    """A client of a service holds, beside a process that takes the name as a lease."""
    remote = Remote()
    clients.thread("a", _work(remote, TOKEN, 0.0), may=UNSURE)
    clients.thread("b", remote.beside, after=0.1)


def by_two_tokens(clients: Clients) -> None:
    """Two clients wait for a lease, and for each other."""
    remote = Remote()
    clients.thread("a", remote.beside)
    clients.thread("b", _work(remote, TOKEN, PATIENCE), after=0.01, may=UNSURE)
    clients.thread("c", _work(remote, ANOTHER, PATIENCE), after=0.02, may=UNSURE)


def asked_again(clients: Clients) -> None:
    """A client asks again through another process, while its first call may be under way."""
    remote = Remote()

    def again(me: Thread) -> None:
        remote.take(me, TOKEN, 3.0, 5.0)
        me.work(0.3)
        remote.release(me, TOKEN)

    clients.thread("a", again, may=UNSURE)
    clients.thread("b", again, after=0.002, may=UNSURE)
    clients.thread("c", remote.beside, after=0.5)


def asked_again_in_the_queue(clients: Clients) -> None:
    """The same while another has the name: both calls wait."""
    remote = Remote()

    def again(me: Thread) -> None:
        remote.take(me, TOKEN, 3.0, 5.0)
        me.work(0.3)
        remote.release(me, TOKEN)

    clients.thread("a", remote.beside)
    clients.thread("b", again, after=0.01, may=UNSURE)
    clients.thread("c", again, after=0.02, may=UNSURE)


def runs_out(clients: Clients) -> None:
    """A client that has the name for a moment is told so when that is over."""
    remote = Remote()

    def late(me: Thread) -> None:
        if remote.take(me, TOKEN, 0.5, 0.0) is not None:
            me.work(0.8)
            remote.renew(me, TOKEN, 3.0)
            if me.allowance.quiet and remote.lasts(me, TOKEN):
                raise Violation(f"{me.name} has renewed what has run out")
            remote.release(me, TOKEN)

    clients.thread("a", late, may=UNSURE)
    clients.thread("b", remote.beside, after=0.1)


SCENARIOS = {
    "by-token": Scenario(by_token),
    "by-two-tokens": Scenario(by_two_tokens),
    "by-token-again": Scenario(asked_again),
    "by-token-again-in-the-queue": Scenario(asked_again_in_the_queue),
    "by-token-until-it-runs-out": Scenario(runs_out),
}
