"""Ending the session that a statement lost: before its next try, and at no cost where all is dead.

Fed with failures instead of a database; on real servers it is the matrix's deaf connections.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dblock import Timeouts, Unavailable
from dblock.dialects import SQLite
from dblock.protocol import commands
from dblock.protocol.exchange import Exchange
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.inspect import look
from dblock.protocol.lease import Held, LeaseRequest
from dblock.protocol.release import abandon
from dblock.protocol.renew import Asked, RenewalFailed, renew_all
from dblock.protocol.state import Renewal
from dblock.protocol.steps import Execute, Procedure, Reply, Step
from dblock.protocol.term import Term

DIALECT = SQLite(None, "dblock_", Timeouts())
ASKED = Asked(Renewal("report", "token", 30.0), Held(1, Term(0.0, 30.0)))
END = commands.EndSession(1, "the lost session")
WITHIN = 4.0


def renewal() -> Procedure[object]:
    return renew_all(DIALECT, [ASKED], WITHIN)


def reading() -> Procedure[object]:
    return look(Exchange(DIALECT, "report", 0.0, 0.0, 0.0, 0.0))


def lose(protocol: Procedure[object]) -> tuple[Step, Step]:
    """Lose the session of the first statement; return that, and what is asked for next."""
    statement = next(protocol)
    return statement, protocol.throw(StatementError(Fault.DISCONNECTED, "silence", end=END))


@pytest.mark.parametrize(("make", "within"), [(renewal, WITHIN), (reading, None)])
@pytest.mark.parametrize("failure", [None, Fault.PRIVILEGE, Fault.CANCELED])
def test_it_is_ended_before_the_repetition(
    make: Callable[[], Procedure[object]], within: float | None, failure: Fault | None
) -> None:
    protocol = make()
    statement, end = lose(protocol)
    assert end == Execute(END, within)
    # Whether that succeeds or not: it is asked for once, and not waited for.
    again = (
        protocol.send(Reply(True, 0.0, 0.0))
        if failure is None
        else protocol.throw(StatementError(failure, "as if"))
    )
    assert again == statement


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.DISCONNECTED])
def test_where_that_does_not_get_through_the_repetition_is_spent(fault: Fault) -> None:
    renewing = renewal()
    lose(renewing)
    with pytest.raises(StopIteration) as told:
        renewing.throw(StatementError(fault, "silence again"))
    (missed,), _ = told.value.value
    assert isinstance(missed, RenewalFailed)
    assert missed.away
    looking = reading()
    lose(looking)
    with pytest.raises(Unavailable):
        looking.throw(StatementError(Fault.UNREACHABLE, "nobody there"))


def test_nothing_is_ended_where_nothing_was_lost() -> None:
    for make in (renewal, reading):
        protocol = make()
        statement = next(protocol)
        assert protocol.throw(StatementError(Fault.DISCONNECTED, "behind a pooler")) == statement


def test_an_abandoned_name_is_looked_at_however_long_the_waiter_took_to_leave() -> None:
    exchange = Exchange(DIALECT, "report", 0.0, WITHIN, WITHIN, 0.0)
    request = LeaseRequest("report", "token", "me", 30.0, tickets=["ticket"])
    abandoning = abandon(exchange, request, [])
    assert next(abandoning) == Execute(commands.Leave("report", "token", "ticket"))
    assert abandoning.send(Reply(1, 0.0, 2 * WITHIN)) == Execute(commands.Look(("report",)))
