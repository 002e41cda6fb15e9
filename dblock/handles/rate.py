"""The rate limit: at most N calls in a time, from all processes together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments import IDLE_MAX, WAIT_MAX, Seconds, check_count, check_name, seconds
from ..errors import NotAcquired, RateLimited
from ..events import Kind
from ..protocol import rate
from ..protocol.rate import SECOND, CellRate
from .base import SingleHandle

if TYPE_CHECKING:
    from ..holding.database import Database


class Rate(SingleHandle):
    """A rate limit, made by :meth:`Locks.rate`: at most ``limit`` calls in a time::

        with locks.rate("api", 100, per=60):
            call_the_api()

    Each call takes a place and uses it up; nothing is held, so nothing has to be released. A call
    without a place raises :class:`RateLimited`, which says when to try again. A refused call
    changes nothing. Use it as a decorator too, or call :meth:`acquire`. Threads can share a Rate.

    It is the generic cell rate algorithm (GCRA): ``burst`` places can be taken at once, and then
    one comes back after each ``per / limit`` seconds. Within any ``W`` seconds there are at most
    ``burst + W * limit / per`` places. With ``burst=1`` they are evenly spaced.

    With ``wait`` the call takes its place in advance, if its time comes within the wait, and sleeps
    once until then. So waiters are served in the order in which the database got their statements.
    A caller that is interrupted while it sleeps has used its place up.

    All that is stored is one time. Programs may give different limits for a name: each counts the
    places of all, and lets a call through if that keeps its own limit.

    One round trip for each call. If a reply is lost, dblock sends the statement again, which finds
    its place unless another caller has taken the next one. So a fault may use a place up, and lets
    no call more than the limit through. You get OutcomeUnknown if a place may have been taken, and
    Unavailable if not. A crash of PostgreSQL may forget the last places, as may a failover.
    """

    strategy = "rate"

    def __init__(
        self,
        database: Database,
        name: str,
        limit: int,
        per: Seconds,
        *,
        burst: int | None,
        cost: int,
        wait: Seconds | None,
    ) -> None:
        super().__init__(wait, database)
        self.name = check_name(name)
        self._limit = check_count("a limit", limit)
        self._burst = self._limit if burst is None else check_count("burst", burst)
        self._cost = check_count("cost", cost)
        self._per, self._cells = check_cells(self._limit, per, self._burst, self._cost)

    def __repr__(self) -> str:
        return f"<Rate {self.name!r} {self._limit} per {self._per:g} s>"

    @property
    def limit(self) -> int:
        """How many places there are for each :attr:`per` seconds."""
        return self._limit

    @property
    def per(self) -> float:
        """The seconds in which :attr:`limit` places come back."""
        return self._per

    @property
    def burst(self) -> int:
        """How many places can be taken at once."""
        return self._burst

    @property
    def cost(self) -> int:
        """How many places one call takes."""
        return self._cost

    def release(self) -> None:
        """Do nothing: a place that was taken is used up."""

    def _try_within(self, wait: float | None) -> NotAcquired | None:
        start = self._database.runtime.now()
        free_in = self._database.run(
            rate.take(
                self._database.exchange(self.name, wait=WAIT_MAX if wait is None else wait),
                self._database.runtime.token(16),
                self._cells,
            )
        )
        if free_in is None:
            self._tell(Kind.ACQUIRED, start)
            return None
        within = f" within {wait:g} s" if wait else ""
        return RateLimited(
            f"the rate limit {self.name!r} has no place{within}: {self._limit} per {self._per:g} s "
            f"are used up, and there is one in {free_in:.3g} s",
            name=self.name,
            retry_after=free_in,
        )


def check_cells(limit: int, per: object, burst: int, cost: int) -> tuple[float, CellRate]:
    """Return the seconds in which ``limit`` places come back, and the cell rate for them."""
    number, least = seconds("per", per), limit / SECOND
    if number < least:
        raise ValueError(
            f"per={per!r} is too short: at least {least:g} seconds for a limit of {limit}, because "
            "the times of places are in microseconds"
        )
    if number > IDLE_MAX:
        raise OverflowError(f"per={per!r} is too long: at most 100 years ({IDLE_MAX:.0f} seconds)")
    if cost > burst:
        raise ValueError(
            f"cost={cost} is more than can be taken at once, which is {burst}: such a call would "
            "never get its places"
        )
    cells = CellRate.of(limit, number, burst, cost)
    if cells.tolerance > IDLE_MAX * SECOND:
        raise OverflowError(f"burst={burst} is too large: these places take more than 100 years")
    return number, cells
