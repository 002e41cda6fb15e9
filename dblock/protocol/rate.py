"""A rate limit: the generic cell rate algorithm (GCRA), over one number for each name.

The number is the theoretical arrival time (TAT): the time at which the limit would be unused again.
Each place moves it on by an interval, from the present time at the earliest. The time of the place
is the tolerance before that, or now if it is later than that::

    TAT' = max(TAT, now) + interval
    place = max(now, TAT' - tolerance)        tolerance = burst * interval

A caller takes the place if it need not wait too long for it. So among the places of any ``W``
seconds there are at most ``burst + W / interval``: their TATs lie within ``W + tolerance`` seconds,
an interval or more apart.

The algorithm is from ATM networks: ATM Forum, Traffic Management Specification 4.0
(af-tm-0056.000, 1996), "virtual scheduling", and ITU-T Recommendation I.371.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..lock_state import printable
from .commands import Command, Name
from .doubt import Doubt
from .exchange import Exchange
from .retry import PAUSE
from .steps import Procedure, Sleep
from .writing import write

#: Microseconds: the unit of a TAT.
SECOND = 1_000_000


class Arrival(NamedTuple):
    """The row of a rate limit, and the time, in microseconds by the database's clock.

    ``tat`` is the theoretical arrival time, and ``mark`` the mark of the call that set it. The row
    of another kind of name has no positive TAT.
    """

    mark: str
    tat: int
    now: int

    @classmethod
    def read(cls, rows: Sequence[Sequence[Any]]) -> Arrival | None:
        """Return the row that a statement has returned."""
        return cls(*rows[0]) if rows else None


class TakePlace(Command[Arrival | None]):
    """Move a name's TAT on by ``step`` microseconds, from the present time at the earliest, and put
    the call's ``mark`` there, unless the TAT would then be more than ``ahead`` in the future.

    Return the row afterwards: the call has its place if its own mark is there. A statement whose
    mark is there already changes nothing, so it can be repeated. One that is refused changes
    nothing either. The reply may be older than a place that another call takes at the same time;
    it is None if the row was not there yet.
    """

    name: Name
    mark: str
    step: int
    ahead: int


class CellRate(NamedTuple):
    """A limit in whole microseconds: what one call moves the TAT by, and the tolerance."""

    step: int
    tolerance: int

    @classmethod
    def of(cls, limit: int, per: float, burst: int, cost: int) -> CellRate:
        """Return the rate of ``limit`` places in ``per`` seconds, for calls that take ``cost``."""
        # Rounded up, so that rounding lets no place more than the limit through.
        interval = math.ceil(per * SECOND / limit)
        return cls(cost * interval, burst * interval)


def take(exchange: Exchange, token: str, cells: CellRate) -> Procedure[float | None]:
    """Take a place whose time is within the exchange's wait, and sleep until then.

    Return None if the place is taken, otherwise the seconds until there is one.

    The statement finds the place again that it took before, by the ``token``, as long as no other
    call has taken a later one. So it is repeated after a lost reply. Raises Unavailable if it took
    no place, and OutcomeUnknown if it may have taken one.
    """
    mark, lost = f'"{token}"', Doubt()
    while True:
        left = math.floor((exchange.left or 0.0) * SECOND)
        command = TakePlace(exchange.name, mark, cells.step, cells.tolerance + left)
        # A row that is in use is no refusal, so a call that does not wait tries for a while too.
        patience = max(exchange.reach, exchange.dialect.timeouts.query)
        reply = yield from write(exchange, command, lost, patience=patience)
        found: Arrival | None = reply.answer
        if found is None:
            yield Sleep(PAUSE)  # until another call has committed the first place of all
            continue
        if found.tat <= 0:
            shown = printable(repr(exchange.name))
            raise ValueError(
                f"{shown} is the name of a semaphore or of an election: choose another name for "
                "the rate limit"
            )
        early = found.tat - cells.tolerance - found.now  # until the time of the latest place
        if found.mark == mark:
            if early > 0:
                yield Sleep(early / SECOND)
            return None
        if early + cells.step > left:
            return (early + cells.step) / SECOND
        # Another call has taken the place meanwhile.
