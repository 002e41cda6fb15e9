"""Ending the session that a statement lost: before its next try, and at no cost where all is dead.

Fed with troubles instead of a database; on real servers it is the matrix's deaf connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dblock import Timeouts, Unavailable
from dblock.dialects import SQLite
from dblock.protocol.faults import Fault, Trouble
from dblock.protocol.leasing import Held, look
from dblock.protocol.renewing import Asked, Missed, renew_all
from dblock.protocol.state import Renewal
from dblock.protocol.steps import Protocol, Query, Reply, Run, Step
from dblock.protocol.term import Term

DIALECT = SQLite(None, "dblock_", Timeouts())
ASKED = Asked(Renewal("report", "token", 30.0), Held(1, Term(0.0, 30.0)))
END: Query[Any] = Query("the end of the lost session", {})
WITHIN = 4.0


def renewal() -> Protocol[object]:
    return renew_all(DIALECT, [ASKED], WITHIN)


def reading() -> Protocol[object]:
    return look(DIALECT, "report", 0.0, 0.0)


def lose(protocol: Protocol[object]) -> tuple[Step, Step]:
    """Lose the session of the first statement; return that, and what is asked for next."""
    statement = next(protocol)
    return statement, protocol.throw(Trouble(Fault.DISCONNECTED, "silence", end=END))


@pytest.mark.parametrize(("make", "within"), [(renewal, WITHIN), (reading, None)])
@pytest.mark.parametrize("trouble", [None, Fault.PRIVILEGE, Fault.CANCELED])
def test_it_is_ended_before_the_repetition(
    make: Callable[[], Protocol[object]], within: float | None, trouble: Fault | None
) -> None:
    protocol = make()
    statement, end = lose(protocol)
    assert end == Run(END, within)
    # Whether that succeeds or not: it is asked for once, and not waited for.
    again = (
        protocol.send(Reply([(True,)], 1, 0.0, 0.0))
        if trouble is None
        else protocol.throw(Trouble(trouble, "as if"))
    )
    assert again == statement


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.DISCONNECTED])
def test_where_that_does_not_get_through_the_repetition_is_spent(fault: Fault) -> None:
    renewing = renewal()
    lose(renewing)
    with pytest.raises(StopIteration) as told:
        renewing.throw(Trouble(fault, "silence again"))
    (missed,) = told.value.value
    assert isinstance(missed, Missed)
    assert missed.away
    looking = reading()
    lose(looking)
    step = looking.throw(Trouble(Fault.UNREACHABLE, "nobody there"))  # it only asks for the time
    assert not isinstance(step, Run)
    with pytest.raises(Unavailable):
        looking.send(Reply((), 0, 1.0, 1.0))


def test_nothing_is_ended_where_nothing_was_lost() -> None:
    for make in (renewal, reading):
        protocol = make()
        statement = next(protocol)
        assert protocol.throw(Trouble(Fault.DISCONNECTED, "behind a pooler")) == statement
