"""Taking a name that readers share: as the first reader, or by joining the present readers.

::

    ask ── granted: the first of a group of readers ─────────────────────────> Held
     └── refused ── poll ── readers hold it ── join ── joined ───────────────> Held
                     ^  └── a writer holds it ─┐  └── a waiter is before it ──┐
                     └───────── wait ──────────┴──────────────────────────────┘

All readers of a group share one hold: one token, one fence. The group's list has each reader by the
token of its own request. A writer finds the name held, and waits in its queue. A waiter in the
queue keeps out the readers that come later. So no waiter is overtaken, readers included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .attempt import Ask, Attempt
from .commands import CallReaders, JoinReaders, ListWaiters
from .faults import Fault, StatementError
from .lease import Held
from .retry import PAUSE
from .state import Passed
from .steps import Execute, Procedure, Reply, Sleep
from .term import Term
from .tokens import STRATEGY, is_shared

#: Seconds that notifying the other readers may take. They also poll, so it may fail.
CALLING = 1.0


@dataclass(eq=False)
class SharedAttempt(Attempt):
    """The progress of one reader."""

    in_step = 2
    #: Seconds of waiting after which the reader checks whether the writers before it are alive; it
    #: repeats the check at intervals of half of this.
    patient: ClassVar[float] = 3.0
    #: No registered waiter is a writer, so the reader may pass the tickets that are in the queue.
    past: bool = False
    #: When to check next, in monotonic seconds.
    asks: float = 0.0

    @property
    def yields(self) -> bool:
        # A waiter in the server reads the row after a moment, and joins the queue when it sees
        # that readers use the name. This gives it the time to do so.
        return (
            self.exchange.dialect.traits.can_wait_in_server and self.exchange.elapsed < self.patient
        )

    @property
    def promising(self) -> bool:
        return super().promising or self._joinable

    @property
    def _joinable(self) -> bool:
        """Whether readers were seen to hold the name, without a waiter before this one."""
        return self._shared and (self.past or not self.seen.position.ahead)

    @property
    def _shared(self) -> bool:
        state = self.seen.state
        return state is not None and state.held and is_shared(state.token) and not self.mine

    # --- asking ------------------------------------------------------------------------------

    def _once(self, ticket: str | None, ask: Ask | None) -> Procedure[tuple[bool, Held | None]]:
        if self._joinable:
            held = yield from self._join(ticket)
            queues = ticket is not None and self.seen.position.ahead is None
            if held is not None or (self._shared and not queues):
                return False, held
        refused, held = yield from super()._once(ticket, ask)
        if held is not None:
            yield from self._call_readers()
        elif self._joinable:
            held = yield from self._join(ticket)
        return refused and held is None, held

    def believe(self, passed: Passed, ticket: str | None) -> Procedure[Held | None]:
        held = yield from super().believe(passed, ticket)
        if held is None:
            return None
        yield from self._call_readers()
        if not held.term.over(self.exchange.now):
            return held
        yield from self._give_back()
        yield from self.look(ticket)
        return None

    def _join(self, ticket: str | None) -> Procedure[Held | None]:
        """Share the hold of the present readers, and settle the outcome."""
        cuts = self.cuts
        held = yield from self._join_once(ticket)
        if held is None and self.cuts > cuts and self._joinable:
            # The connection may have died while it was idle: that must not refuse the reader.
            held = yield from self._join_once(ticket)
        return held

    def _join_once(self, ticket: str | None) -> Procedure[Held | None]:
        state = self.seen.state
        assert state is not None
        assert state.token is not None
        self.request.group = state.token
        reply = yield from self._ask_to_join(state.token)
        if reply is not None and reply.answer:
            term = Term(reply.sent, self.request.ttl)
            return Held(state.fence, term, reply.server, group=state.token)
        yield from self.look(ticket)
        held = yield from self._found()
        # Usually the readers have left, or a waiter has come. If not, the witness refused it.
        refused = reply is not None and self._joinable
        witness = self.exchange.dialect.traits.has_witness and self.opens is None
        if held is None and refused and witness and (yield from self._mend_witness()):
            held = yield from self._join_once(ticket)
        return held

    def _ask_to_join(self, group: str) -> Procedure[Reply[int] | None]:
        """Ask to join; None if there was no clear reply. Other readers lock the row for a moment
        when they join or leave; this waits for them rather than be refused."""
        request, exchange = self.request, self.exchange
        ticket = request.tickets[-1] if request.tickets else request.token
        command = JoinReaders(request.name, group, request.token, request.ttl, ticket, self.past)
        until = exchange.now + exchange.dialect.timing.leaving
        while True:
            try:
                reply = yield from self.send(command)
            except StatementError as failure:
                if failure.fault is not Fault.BUSY or exchange.now >= until:
                    self._take_doubt(failure)
                    return None
                exchange.now = (yield Sleep(PAUSE / 5)).now
            else:
                self.server = reply.server
                return reply

    def _call_readers(self) -> Procedure[None]:
        """Notify the readers behind this one, now that it holds the name: they may join."""
        if self.exchange.dialect.traits.can_notify and self.request.tickets:
            command = CallReaders(self.request.name, self.request.token)
            try:
                self.exchange.now = (yield Execute(command, CALLING)).now
            except StatementError as failure:
                self.exchange.now = failure.now

    # --- reading -----------------------------------------------------------------------------

    def _look(self, ticket: str | None) -> Procedure[None]:
        yield from super()._look(ticket)
        if not self._shared:
            self.past = False
        elif self.seen.position.ahead != 0 and self._has_patience_ended():
            yield from self._look_for_writers()

    def _has_patience_ended(self) -> bool:
        """Whether every living writer that came before this reader has registered by now.

        Without notifications a writer registers before it joins the queue, or when it finds that
        readers hold the name. Then it is enough that the readers have held it for this long.
        """
        lasted, state = self.exchange.elapsed, self.seen.state
        polls = not self.exchange.dialect.traits.can_notify
        if polls and state is not None and state.lasted is not None:
            lasted = max(lasted, state.lasted)
        return lasted >= self.patient

    def _look_for_writers(self) -> Procedure[None]:
        """Read whether a writer is registered as a waiter.

        A writer that was killed while it waited may stay in the queue for as long as readers hold
        the name.
        """
        name = self.request.name
        if self.past or self.exchange.now < self.asks:
            return
        reply = yield from self.exchange.ask_or_explain(ListWaiters(name))
        self.asks = reply.now + self.patient / 2
        self.past = all(one.strategy == STRATEGY for one in reply.answer.get(name, ()))
