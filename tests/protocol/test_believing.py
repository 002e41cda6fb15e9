"""What is believed of a message that a name was passed on, fed with messages instead of a database.

All but the message itself comes from when the place in the queue was seen: at ``SEEN`` by the
holder's clock, at ``CLOCK`` by the database's.
"""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dblock import Timeouts
from dblock.dialects import PostgreSQL
from dblock.protocol import commands
from dblock.protocol.attempt import Attempt, Seen
from dblock.protocol.commands import LookQueued
from dblock.protocol.doubt import Doubt
from dblock.protocol.exchange import Exchange
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Held, LeaseRequest
from dblock.protocol.state import LockRow, Passed, QueuePosition, Renewal
from dblock.protocol.steps import Execute, Sleep, Step
from dblock.protocol.term import FIRST_TERM, MARGIN_SHARE, Term
from tests.protocol.rows import Rows, reading

DIALECT = PostgreSQL(None, "dblock_", Timeouts())
TICKET, TOKEN, TTL = "0" * 24, "f" * 32, 30.0
THEN = datetime(2026, 1, 1)
SEEN, CLOCK, FENCE = 100.0, 5000.0, 3
PLACE = QueuePosition(0, free=False, clock=CLOCK)
#: Heard of half a second after it was passed on, three seconds after the place was seen.
NEXT, HEARD = Passed(FENCE + 1, CLOCK + 3.0, FIRST_TERM), SEEN + 3.5


def attempt(
    *,
    now: float = HEARD,
    place: QueuePosition = PLACE,
    short: bool = True,
    doubt: Doubt | None = None,
) -> Attempt:
    state = LockRow("report", FENCE, "another's", "another", THEN, THEN, 25.0)
    request = LeaseRequest("report", TOKEN, "me", TTL, short)
    exchange = Exchange(DIALECT, "report", SEEN, None, 1.0, now)
    return Attempt(exchange, request, Seen(state, place, SEEN), "server", doubt)


def believed(attempt: Attempt, passed: Passed) -> Held | Step | None:
    """Return the hold, or what is asked for first."""
    believing = attempt.believe(passed, TICKET)
    try:
        return next(believing)
    except StopIteration as told:
        held: Held | None = told.value
        return held


def looks(attempt: Attempt, passed: Passed) -> bool:
    """Whether it is the table that is asked."""
    return believed(attempt, passed) == Execute(LookQueued("report", TOKEN, TICKET))


def test_its_term_began_when_it_was_granted() -> None:
    """Less the margin, for clocks that do not go alike."""
    start = SEEN + 3.0 * (1 - MARGIN_SHARE)
    expected = Held(FENCE + 1, Term(start, FIRST_TERM), "server", contended=True)
    assert believed(attempt(), NEXT) == expected


def test_its_term_did_not_begin_after_it_was_heard_of() -> None:
    """By a clock that goes faster than the database's, or is not set forward with that."""
    held = believed(attempt(now=SEEN + 1.0), NEXT)
    assert isinstance(held, Held)
    assert held.term == Term(SEEN + 1.0, FIRST_TERM)


@pytest.mark.parametrize("fence", [FENCE - 1, FENCE])
def test_a_message_of_a_hold_before_is_not_believed(fence: int) -> None:
    assert looks(attempt(), NEXT._replace(fence=fence))


def test_a_message_that_comes_twice_is_not_believed() -> None:
    """Its hold was seen in between."""
    mine = attempt()
    assert not looks(mine, NEXT)
    mine.seen = Seen(
        LockRow("report", NEXT.fence, None, "me", THEN, THEN, -1.0), PLACE, mine.exchange.now
    )
    assert looks(mine, NEXT)


def test_without_the_databases_clock_it_is_not_believed() -> None:
    assert looks(attempt(place=PLACE._replace(clock=None)), NEXT)


def test_what_was_seen_too_long_ago_tells_nothing_of_when_it_began() -> None:
    waited = 60.0
    late = NEXT._replace(granted=CLOCK + waited)
    assert looks(attempt(now=SEEN + waited), late)


def test_a_message_that_comes_too_late_to_act_on_is_not_believed() -> None:
    assert looks(attempt(now=SEEN + 3.0 + FIRST_TERM / 2), NEXT)


def test_in_doubt_it_is_not_believed() -> None:
    """The token may have been granted to a try before, which is yet to arrive."""
    assert looks(attempt(doubt=Doubt()), NEXT)


def test_who_does_not_renew_has_its_whole_ttl_first() -> None:
    step = believed(attempt(short=False), NEXT)
    assert isinstance(step, Execute)
    assert step.command == commands.Renew((Renewal("report", TOKEN, TTL),))


def test_what_the_table_says_instead_is_settled_by_a_renewal() -> None:
    mine = attempt(place=PLACE._replace(clock=None))
    believing = reading(DIALECT, mine.believe(NEXT, TICKET))
    next(believing)
    row = ("report", FENCE + 1, TOKEN, "me", THEN, THEN, 1.5, None, False, CLOCK)
    step = believing.send(Rows([row], 1, HEARD, HEARD, "server"))
    assert isinstance(step, Execute)
    assert step.command == commands.Renew((Renewal("report", TOKEN, TTL),))


def test_one_whose_row_is_in_use_when_its_time_is_over_is_told_the_truth() -> None:
    """It found that it was passed the name, and has no time left to prove it."""
    mine = attempt(place=PLACE._replace(clock=None))
    mine.exchange.wait = HEARD - SEEN
    believing = reading(DIALECT, mine.believe(NEXT, TICKET))
    next(believing)
    row = ("report", FENCE + 1, TOKEN, "me", THEN, THEN, 1.5, None, False, CLOCK)
    believing.send(Rows([row], 1, HEARD, HEARD, "server"))
    step = believing.throw(StatementError(Fault.BUSY, "its row is in use"))
    while isinstance(step, Sleep):
        step = believing.send(Rows([], 0, HEARD, HEARD))
    assert isinstance(step, Execute)


def test_what_the_table_does_not_say_is_not_had() -> None:
    mine = attempt(place=PLACE._replace(clock=None))
    believing = reading(DIALECT, mine.believe(NEXT, TICKET))
    next(believing)
    row = ("report", FENCE + 1, "another's", "another", THEN, THEN, 25.0, 0, False, CLOCK)
    with pytest.raises(StopIteration) as told:
        believing.send(Rows([row], 1, HEARD, HEARD, "server"))
    assert told.value.value is None


@given(
    rate=st.floats(1 - MARGIN_SHARE, 1 + MARGIN_SHARE),
    seen_after=st.floats(0.0, 1.0),
    granted_after=st.floats(0.0, 60.0),
    heard_after=st.floats(0.0, 60.0),
)
def test_however_clocks_differ_it_is_not_believed_past_its_end(
    rate: float, seen_after: float, granted_after: float, heard_after: float
) -> None:
    """The database's clock goes so much faster or slower than the holder's.

    It looks so long after it was asked, grants so long after that, and is heard so long after that.
    """
    granted = SEEN + seen_after + granted_after
    message = NEXT._replace(granted=CLOCK + granted_after * rate)
    held = believed(attempt(now=granted + heard_after), message)
    if isinstance(held, Held):
        assert held.term.start <= granted + 1e-9
        assert held.term.deadline <= granted + FIRST_TERM / rate + 1e-9
