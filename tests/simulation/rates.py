"""The rate limits of a run: no more places than a limit allows, and no fault, no lost place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dblock import NotAcquired, OutcomeUnknown, Rate, Unavailable
from dblock.protocol.commands import PruneValues
from dblock.protocol.rate import SECOND, TakePlace
from tests.simulation.loop import Actor, Violation

if TYPE_CHECKING:
    from tests.simulation.store import Store
    from tests.simulation.thread import Thread

#: Seconds by which SQLite rounds a clock, and floats a moment.
_ROUNDED = 0.002


class Taken(NamedTuple):
    """The latest place of a rate limit: its TAT in seconds by the store's clock, and its mark."""

    tat: float
    mark: str


class Place(NamedTuple):
    """A place that was taken: for which name, its TAT, and the store's clock at that time."""

    name: str
    tat: float
    at: float


class Rates:
    """The places, as the tables and the threads tell of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[str, Taken] = {}
        #: How often the server had fallen when the rows were compared.
        self._falls = store.falls
        #: The places by their marks, and the marks of places that callers were told of.
        self.places: dict[str, Place] = {}
        self._told: set[str] = set()
        #: The mark of the latest answer of each thread.
        self._answered: dict[Actor, str] = {}
        #: By names: when places were due.
        self._due: defaultdict[str, list[float]] = defaultdict(list)

    def _forget(self) -> None:
        """A server that has fallen may have forgotten places, so nothing is compared with them."""
        self._falls = self._store.falls
        self._rows = dict(self._store.rates())
        self.places.clear()
        self._due.clear()

    def carried_out(self, command: object) -> None:
        """Compare the rows with the rows before a statement."""
        if self._store.falls != self._falls:
            self._forget()
        elif isinstance(command, TakePlace):
            self._take(command, self._store.rates(), self._store.clock())
        elif isinstance(command, PruneValues):
            self._prune(self._store.rates(), self._store.clock())

    def _take(self, command: TakePlace, rows: Mapping[str, Taken], now: float) -> None:
        name, step, ahead = command.name, command.step / SECOND, command.ahead / SECOND
        before, after = self._rows.get(name), rows[name]
        self._rows = dict(rows)
        least = now if before is None else max(now, before.tat)
        if after == before:
            if after.mark != command.mark and before.tat + step < now + ahead - _ROUNDED:
                raise Violation(f"a place of {name!r} is refused, and there is one")
            return
        if after.mark != command.mark:
            raise Violation(f"a call that took no place of {name!r} changed it")
        if before is not None and before.mark == command.mark:
            raise Violation(f"one call took two places of {name!r}")
        if after.tat < least + step - _ROUNDED:
            raise Violation(f"a place of {name!r} moves it on by too little")
        if after.tat > now + ahead + _ROUNDED:
            raise Violation(f"a place of {name!r} is too far ahead")
        self.places[command.mark] = Place(name, after.tat, now)

    def _prune(self, rows: Mapping[str, Taken], now: float) -> None:
        for name in self._rows.keys() - rows.keys():
            if self._rows[name].tat > now:
                raise Violation(f"{name!r} was retired before its places were back")
        self._rows = dict(rows)

    # --- what callers are told ---------------------------------------------------------------

    def answered(self, actor: Actor, command: object) -> None:
        if isinstance(command, TakePlace):
            self._answered[actor] = command.mark

    def begin(self, actor: Actor) -> None:
        self._answered.pop(actor, None)

    def has(self, actor: Actor) -> bool:
        """Whether the call of a thread has taken a place."""
        return self._answered.get(actor) in self.places

    def told(self, thread: Thread, rate: Rate) -> None:
        """A caller is told that it has a place: so it has, and the place is due."""
        mark, now = self._answered[thread.actor], self._store.clock()
        place = self.places.get(mark)
        if place is None:
            if thread.allowance.falls:
                return  # the database has forgotten it
            raise Violation(f"{thread.name} is told of a place of {rate.name!r}, and has none")
        self._told.add(mark)
        interval = rate.per / rate.limit
        due = max(place.at, place.tat - rate.burst * interval)
        if now < due - _ROUNDED:
            raise Violation(f"{thread.name} has its place of {rate.name!r} {due - now:.3f} s early")
        times = self._due[rate.name]
        times.append(due)
        times.sort()
        for first, start in enumerate(times):
            for last in range(first, len(times)):
                most = rate.burst + (times[last] - start + _ROUNDED) / interval
                if (last - first + 1) * rate.cost > most:
                    raise Violation(f"more calls of {rate.name!r} than its limit: {times}")

    def judge(self) -> None:
        """In the end each place is a caller's that was told so."""
        lost = self.places.keys() - self._told
        if lost:
            raise Violation(f"{len(lost)} places are lost")


def call(me: Thread, rate: Rate, wait: float = 0.0) -> bool:
    """Take a place, and compare with the tables what the call is told."""
    rates = me.ledger.rates
    rates.begin(me.actor)
    try:
        with me.calling(f"taking a place of {rate.name!r}", wait):
            refusal = rate._acquire(wait)
    except OutcomeUnknown:
        raise
    except Unavailable as error:
        if rates.has(me.actor):
            raise Violation(f"{me.name} is not told that nobody knows: {error!r}") from error
        raise
    if refusal is None:
        me.note(f"has a place of {rate.name}")
        rates.told(me, rate)
        return True
    me.note(f"has no place of {rate.name}")
    _refused(me, refusal)
    return False


def _refused(me: Thread, refusal: NotAcquired) -> None:
    if getattr(refusal, "retry_after", 0.0) <= 0:
        raise Violation(f"{me.name} is told to try again at once: {refusal!r}")
    if me.ledger.rates.has(me.actor) and me.allowance.quiet:
        raise Violation(f"{me.name} is refused, and has a place")
