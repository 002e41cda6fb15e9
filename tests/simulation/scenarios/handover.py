"""Handovers: the hold continues in one other process, and nobody has the name in between."""

from __future__ import annotations

from collections.abc import Callable

from dblock import LockLost, OutcomeUnknown, Unsupported
from dblock.protocol.faults import Fault
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread

#: Seconds for which who is asked to go on looks for what to go on with.
ASKED = 3.0


def _detaching(me: Thread, texts: list[str], ttl: float) -> None:
    """Take it, work a little, and let another go on."""
    lease = me.lease(NAME, ttl=3)
    if me.acquire(lease, 0):
        me.work(0.1, lease)
        texts.append(me.detach(lease, ttl))


def _asked(me: Thread, texts: list[str]) -> str | None:
    """Wait until there is something to go on with."""
    while not texts and me.loop.now < ASKED:
        me.work(0.05)
    return texts[0] if texts else None


def _attaching(texts: list[str], seconds: float) -> Callable[[Thread], None]:
    def attaching(me: Thread) -> None:
        text = _asked(me, texts)
        if text is not None:
            lease = me.attach(text, 1.5)
            me.work(seconds, lease)
            me.release(lease)

    return attaching


def handover(clients: Clients) -> None:
    """One takes it and detaches it, another goes on for longer than the first had it for."""
    texts: list[str] = []
    clients.thread("a", lambda me: _detaching(me, texts, 3.0))
    clients.thread("b", _attaching(texts, 2.0), after=0.05)
    clients.thread("c", once, after=0.06)


def handover_again(clients: Clients) -> None:
    """The second detaches it too, and a third attaches it."""
    texts: list[str] = []
    more: list[str] = []

    def between(me: Thread) -> None:
        text = _asked(me, texts)
        if text is not None:
            lease = me.attach(text, 3.0)
            me.work(0.1, lease)
            more.append(me.detach(lease, 3.0))

    clients.thread("a", lambda me: _detaching(me, texts, 3.0))
    clients.thread("b", between, after=0.05)
    clients.thread("c", _attaching(more, 0.1), after=0.06)
    clients.thread("d", once, after=0.07)


def attached_twice(clients: Clients) -> None:
    """Two are asked to go on with the same hold: one does, the other is told."""
    texts: list[str] = []
    done: list[str] = []

    def one_of_two(me: Thread) -> None:
        text = _asked(me, texts)
        if text is None:
            return
        try:
            lease = me.attach(text, 3.0)
        except LockLost as loss:
            me.note(f"is told: {loss.reason}")
            if me.allowance.quiet and loss.reason not in ("attached", "taken over", "released"):
                raise Violation(
                    f"{me.name} is told why it does not go on, wrongly: {loss}"
                ) from loss
            return
        done.append(me.name)
        if len(done) > 1:
            raise Violation(f"{done} have attached the same hold")
        me.work(0.5, lease)
        me.release(lease)

    clients.thread("a", lambda me: _detaching(me, texts, 3.0))
    clients.thread("b", one_of_two, after=0.05)
    clients.thread("c", one_of_two, after=0.051)
    clients.thread("d", once, after=0.06)


def nobody_goes_on(clients: Clients) -> None:
    """It is detached, and its process is killed; who comes too late is told that it is over."""
    texts: list[str] = []

    def dying(me: Thread) -> None:
        _detaching(me, texts, 1.0)
        me.client.kill()

    def too_late(me: Thread) -> None:
        me.work(1.5)
        if texts:
            lease = me.attach(texts[0], 3.0)
            if me.allowance.quiet:
                raise Violation(f"{me.name} goes on with a hold that has run out")
            me.release(lease)

    clients.thread("a", dying)
    clients.thread("b", too_late, after=0.1, may=(LockLost,))
    clients.thread("c", once, after=2.5)


def dies_attaching(clients: Clients) -> None:
    """Who goes on with it is killed: then it runs out."""
    texts: list[str] = []

    def dying(me: Thread) -> None:
        text = _asked(me, texts)
        if text is not None:
            lease = me.attach(text, 1.0)
            me.work(0.5, lease)
            me.client.kill()

    clients.thread("a", lambda me: _detaching(me, texts, 3.0))
    clients.thread("b", dying, after=0.05)
    clients.thread("c", once, after=0.06)


def delivered_again(clients: Clients) -> None:
    """Who goes on with it is killed, and a third is asked until it is told that this is over."""
    texts: list[str] = []

    def dying(me: Thread) -> None:
        text = _asked(me, texts)
        if text is not None:
            me.attach(text, 1.0)
            me.work(0.2)
            me.client.kill()

    def again(me: Thread) -> None:
        text = _asked(me, texts)
        me.work(0.3)
        while text is not None and me.loop.now < 2 * ASKED:
            try:
                me.release(me.attach(text, 1.0))
            except LockLost as loss:
                me.note(f"is told: {loss.reason}")
                if loss.reason != "attached":
                    return
            me.work(0.5)

    clients.thread("a", lambda me: _detaching(me, texts, 3.0))
    clients.thread("b", dying, after=0.05)
    clients.thread("c", again, after=0.06, may=(LockLost,))


def while_renewed(clients: Clients) -> None:
    """It is detached while it is renewed, if that takes a moment, for another while."""
    texts: list[str] = []

    def detaching(me: Thread) -> None:
        lease = me.lease(NAME, ttl=3)
        if me.acquire(lease, 0):
            me.work(0.8)
            hold = lease._current()
            while me.loop.now < 1.2 and hold is not None and not hold.renewing:
                me.work(0.02)
            texts.append(me.detach(lease, 1.5))

    clients.thread("a", detaching)
    clients.thread("b", _attaching(texts, 0.3), after=0.9)
    clients.thread("c", once, after=1.0)


def under_a_guard(clients: Clients) -> None:
    """It is detached before the guarded transaction has ended: who goes on does so after that."""
    texts: list[str] = []
    ended: list[bool] = []

    def detaching(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        if me.acquire(lease, 0):
            with me.transaction() as connection:
                me.guarded(connection, lease)
                texts.append(me.detach(lease, 5.0))
                me.work(0.3)
            ended.append(True)

    def attaching(me: Thread) -> None:
        text = _asked(me, texts)
        if text is None:
            return
        with me.calling("attaching under a guard", 2.0):
            lease = me.locks.attach(text, ttl=3.0)
            lease.acquire()
        me.beliefs.begin(me, lease)
        me.write(lease)
        me.release(lease)

    clients.thread("a", detaching)
    clients.thread("b", attaching, after=0.01)
    clients.thread("c", once, after=0.02)


def blindly(clients: Clients) -> None:
    """Nobody may look at the name any more: who has no reply is told that nobody knows."""
    texts: list[str] = []

    def detaching(me: Thread) -> None:
        _detaching(me, texts, 3.0)
        me.ledger.unknowing.update(me.loop.actors)  # nor can anybody give it back then
        me.ledger.store.refused = dict.fromkeys(("look", "end_session"), Fault.PRIVILEGE)

    def attaching(me: Thread) -> None:
        text = _asked(me, texts)
        if text is not None:
            me.release(me.attach(text, 3.0))

    clients.thread("a", detaching)
    clients.thread("b", attaching, after=0.05, may=(OutcomeUnknown, Unsupported))


SCENARIOS = {
    "handover": Scenario(handover),
    "handover-again": Scenario(handover_again),
    "handover-slowly": Scenario(handover, rate=0.9),
    "attached-twice": Scenario(attached_twice),
    "attached-too-late": Scenario(nobody_goes_on),
    "dies-going-on": Scenario(dies_attaching),
    "delivered-again": Scenario(delivered_again),
    "detached-while-renewed": Scenario(while_renewed),
    "attached-blindly": Scenario(blindly),
    "detached-under-a-guard": Scenario(under_a_guard, needs=frozenset({"lending", "rows"})),
}
