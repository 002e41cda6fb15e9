"""A semaphore: a limit that all processes share, and one name for each slot up to the limit.

::

    take the slot of the last time ── granted ─────────────────────> Held
     └── refused, or there was none
    take any slot ── granted ──────────────────────────────────────> Held
     └── refused ── read ── no limit yet: write it ──────────────┐
                     ├── another limit ────────> LimitMismatch   ├──> take any slot
                     ├── none free, one has no row: create it ───┘
                     └── all held, or waiters before us ── the turnstile ── wait

A slot is a name, and its hold is a lease like any other, but one statement takes any free slot. A
caller that is refused and may wait takes the turnstile first: a lease on the semaphore's own name.
So waiters go in the order of the turnstile's queue, only the turnstile's holder tries to take a
slot, and no later caller overtakes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import DBLockError, LimitMismatch, OutcomeUnknown, Unavailable
from ..lock_state import counted
from .attempt import Attempt, Seen
from .commands import Command, Create, GrantSlot, LookAtSlots, SetLimit
from .doubt import Doubt
from .exchange import Exchange
from .faults import StatementError
from .lease import Held, Refused
from .release import renounce, return_all
from .retry import UNDONE
from .state import Granted, LockRow, QueuePosition, Slots
from .steps import Procedure, Reply, Sleep
from .writing import write

if TYPE_CHECKING:
    from ..policy import RetryPolicy
    from .waiters import Waiter

#: Seconds: the longest interval between two polls by the turnstile's holder.
LOOK = 0.1


def slot_name(name: str, number: int) -> str:
    """Return the name of a slot; the first one is number 1."""
    return f"{name}#{number}"


def is_slot(name: str, semaphore: str) -> bool:
    """Return whether a name is a slot's name of a semaphore."""
    before, sign, number = name.rpartition("#")
    return sign == "#" and before == semaphore and number.isdecimal()


def number_of(name: str) -> int:
    """Return the number of a slot."""
    return int(name.rpartition("#")[2])


@dataclass(eq=False, kw_only=True)
class SlotAttempt(Attempt):
    """The progress of one caller. Once a slot is granted or found, the request has its name."""

    name: str
    limit: int
    #: Slots are tried in order from slot ``first + 1`` on.
    first: int = 0
    #: Whether to try slot ``first + 1`` alone before all slots.
    known: bool = False
    #: The token of this caller's hold of the turnstile; empty without one.
    turnstile: str = ""
    slots: Slots = field(default=Slots(None, {}), init=False)

    @property
    def _names(self) -> list[str]:
        return [slot_name(self.name, number) for number in range(1, self.limit + 1)]

    @property
    def admitted(self) -> bool:
        """Whether the turnstile was seen to be free, or held by this caller."""
        turnstile = self.slots.rows.get(self.name)
        return (
            turnstile is None
            or turnstile.position.free
            or (turnstile.row.token is not None and turnstile.row.token == self.turnstile)
        )

    @property
    def _rowless(self) -> str | None:
        """The first slot without a row, in the order in which slots are tried."""
        names = self._names
        order = names[self.first :] + names[: self.first]
        return next((name for name in order if name not in self.slots.rows), None)

    # --- asking ------------------------------------------------------------------------------

    def begin(self) -> Procedure[Held | Refused]:
        """Take any slot without waiting, or be refused."""
        held = yield from self.take()
        if held is not None:
            return held
        wait = self.exchange.wait
        return (yield from self.refuse()) if wait == 0 else Refused(self.seen.state, self.closed)

    def take(self) -> Procedure[Held | None]:
        """Take any slot, without waiting."""
        while True:
            held = yield from self.run(None, self._ask)
            if held is not None:
                return held
            self._check_limit()
            if self.closed or not self.admitted or self._rowless is None:
                return None
            # Other callers have taken the rows that this one created: try again.

    def _ask(self) -> Procedure[Reply[Granted | None]]:
        if self.known:
            self.known = False
            command = self._statement(known=True)
            try:
                reply = yield from self.send(command)
            except StatementError as failure:
                if failure.fault not in UNDONE:  # UNDONE: another caller is taking that slot
                    raise
            else:
                # Without a fence in the reply this is a grant too: the row is read then.
                if reply.answer is not None:
                    return reply
                self.server = reply.server
        command = self._statement(known=False)
        return (yield from self.send(command))

    def _statement(self, *, known: bool) -> Command[Granted | None]:
        request = self.request
        return GrantSlot(
            self.name,
            self.limit,
            request.token,
            request.owner,
            request.ttl,
            self.turnstile,
            self.first,
            known,
        )

    def _look(self, ticket: str | None) -> Procedure[None]:
        reply = yield from self.exchange.ask_or_explain(LookAtSlots(self.name, self.limit))
        self.slots, self.server = reply.answer, reply.server
        known = self.slots.rows
        slots = [known[name] for name in self._names if name in known]
        ours = [one.row for one in slots if one.row.token == self.request.token]
        mine = next((row for row in ours if row.held), next(iter(ours), None))
        self.request.name = self.name if mine is None else mine.name
        free = [one.row for one in slots if one.position.free and self.admitted]
        state = mine or next(iter(free), None)
        if state is None and len(slots) == self.limit:  # all are held: the first to expire
            state = min((one.row for one in slots), key=_left)
        self.seen = Seen(state, QueuePosition(None, bool(free)), reply.sent)

    def _mend(self, ticket: str | None) -> Procedure[bool]:
        """As for a name; and write the limit or a slot's row if they are missing."""
        if self.mine or not self.admitted or self.slots.limit not in (None, self.limit):
            return False
        rowless, again = self._rowless, False
        if self.slots.limit is None:
            limit = SetLimit(self.name, self.limit, anew=False)
            yield from self._write(limit)
            again = True
        if rowless is not None:  # even if a slot seems free: a guard may block it
            yield from self._write(Create(rowless))
            again = True
        if self.exchange.dialect.traits.has_witness and (again or self.seen.position.free):
            again = (yield from self._mend_witness()) or (again and not self.closed)
        return again

    def _write(self, command: Command[int]) -> Procedure[None]:
        """Execute a write that is safe to repeat."""
        try:
            yield from self.exchange.ask_or_explain(command)
        except DBLockError as error:
            raise self.told(error) from error.__cause__

    def _check_limit(self) -> None:
        """Raise LimitMismatch if the semaphore has another limit."""
        stored = self.slots.limit
        if stored is not None and stored != self.limit:
            raise self.told(mismatch(self.name, self.limit, stored))

    # --- waiting -----------------------------------------------------------------------------

    def wait(
        self, policy: RetryPolicy, waiter: Waiter | None, has_turnstile: Callable[[], bool]
    ) -> Procedure[Held | Refused | None]:
        """Try and poll until a slot is free; None if this caller lost the turnstile meanwhile."""
        exchange, number = self.exchange, 1
        held = yield from self.take()
        while held is None and has_turnstile():
            sleep = policy.sleep_after(
                self.name, number, exchange.elapsed, exchange.left, most=LOOK
            )
            if sleep is None:
                return (yield from self.refuse())
            number += 1
            state = self.seen.state
            if state is not None and state.held and state.remaining is not None:
                sleep = min(sleep, state.remaining)
            if self.closed:
                sleep = exchange.capped(self.closed)
            if waiter is None:
                exchange.now = (yield Sleep(sleep)).now
            else:
                exchange.now = (yield from waiter.wait(Sleep, sleep, exchange.now)).now
            yield from self.look(None)
            self._check_limit()
            if self.seen.position.free or self._rowless is not None or self.mine:
                held = yield from self.take()
        return held

    def refuse(self) -> Procedure[Refused]:
        """Release a slot that may have been granted, and return the refusal."""
        if self.doubt is not None:
            yield from self.look(None)
            if self.mine:
                renounce(self.request, lost=True)
        prevented = yield from return_all(
            self.exchange, self.request, self.exchange.dialect.timing.leaving
        )
        if prevented is not None:
            raise self.unknown(prevented) from prevented
        if self.timed_out is not None and self.seen.position.free:
            raise self.told(self.timed_out)
        return Refused(self.seen.state, self.closed)

    def find(self, exchange: Exchange) -> Procedure[LockRow | None]:
        """Read which slot the request was granted, if any.

        The attempt goes on with ``exchange``, because its call's own is over.
        """
        self.exchange = exchange
        yield from self._look(None)
        return self.seen.state if self.mine else None


def _left(row: LockRow) -> float:
    return 0.0 if row.remaining is None else row.remaining


def mismatch(name: str, limit: int, stored: int) -> LimitMismatch:
    """Return the error for a caller whose limit differs from the stored limit."""
    if stored <= 0:
        used = "a rate limit" if stored else "an election"
        return LimitMismatch(
            f"{name!r} is no semaphore: {used} has this name. Choose another name for the "
            "semaphore",
            name=name,
            limit=limit,
        )
    return LimitMismatch(
        f"the semaphore {name!r} has {counted(stored, 'slot')}, and limit={limit} was asked for: "
        f"use limit={stored}, or change it for all processes with resize({limit})",
        name=name,
        limit=limit,
        stored=stored,
    )


def resize(exchange: Exchange, limit: int, most: int, before: Doubt) -> Procedure[int]:
    """Change a semaphore's limit; earlier changes ``before`` can no longer arrive after this one.

    Return how many slots above the new limit, up to ``most``, are still held. Raises LimitMismatch
    if the name is an election's; OutcomeUnknown and Unavailable as :func:`.write` does.
    """
    name = exchange.name
    yield from write(exchange, SetLimit(name, limit, anew=True), before)
    try:
        reply = yield from exchange.ask_or_explain(LookAtSlots(name, most))
    except Unavailable as error:
        raise OutcomeUnknown(
            f"the limit of {name!r} may have been changed, and its slots could not be looked at: "
            f"{error}. Resize it again",
            name=name,
        ) from error.__cause__
    found = reply.answer
    if found.semaphore_limit is None:
        raise mismatch(name, limit, found.limit or 0)
    above = (slot_name(name, number) for number in range(limit + 1, most + 1))
    return sum(one in found.rows and found.rows[one].row.held for one in above)
