"""How tries are counted and settled, fed with replies instead of a database."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import datetime
from typing import Any

import pytest
from tenacity import RetryCallState

from dblock import OutcomeUnknown, RetryPolicy, SchemaMissing, Timeouts, Unavailable
from dblock.dialects import PostgreSQL
from dblock.protocol import commands
from dblock.protocol.acquire import acquire
from dblock.protocol.commands import Look
from dblock.protocol.exchange import Exchange
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Held, LeaseRequest, Refused
from dblock.protocol.release import renounce, return_all
from dblock.protocol.state import Renewal
from dblock.protocol.steps import Disown, Execute, Sleep, Step, WaitTurn
from dblock.protocol.term import Term
from dblock.protocol.waiters import Caller, Waiter
from dblock.protocol.waiting import WaitOptions
from tests.protocol.rows import Rows, reading

DIALECT = PostgreSQL(None, "dblock_", Timeouts())
THEN = datetime(2026, 1, 1)
FREE = ("report", 1, None, None, THEN, THEN, -1.0, None)
TAKEN = ("report", 2, "another's", "another", THEN, THEN, 30.0, None)
NOT_GRANTED = (None, None, None)
END = commands.EndSession(1, "the lost session")
ENDLESS = RetryPolicy()
SLEPT = Rows([], 0, 0.1, 0.1)
#: What becomes of a lost session.
GONE, THERE, STILL_THERE = Rows([], 0, 0, 0), Rows([(True,)], 1, 0, 0), Rows([(True,)], 1, 2, 2)
FIRST_IN_LINE = [("ticket", True)]


def reply(rows: Sequence[Sequence[Any]]) -> Rows:
    return Rows(rows, len(rows), 0.0, 0.0, "server")


def acquiring_within(
    wait: float | None, timeout: float = 1.0, policy: RetryPolicy = ENDLESS
) -> tuple[Generator[Step, Rows, Held | Refused], LeaseRequest]:
    """One that is about to ask for a name, and its request."""
    waiter = Waiter(DIALECT, "report", "lease", 0.0, Caller(str, dict, str, {}))
    request = LeaseRequest("report", "mine", "me", 30.0)
    exchange = Exchange(DIALECT, "report", 0.0, wait, timeout, 0.0)
    options = WaitOptions(policy, "report", lambda: waiter)
    return reading(DIALECT, acquire(exchange, request, options)), request


def test_a_name_that_becomes_free_while_it_is_joined_for_is_tried_for_in_the_same_try() -> None:
    counted: list[int] = []

    def stop(state: RetryCallState) -> bool:
        counted.append(state.attempt_number)
        return False

    acquiring, _ = acquiring_within(None, policy=RetryPolicy(stop=stop))
    said: list[tuple[type[object], Sequence[Sequence[Any]]]] = [
        (Execute, []),  # refused
        (WaitTurn, FIRST_IN_LINE),
        (Execute, [(*NOT_GRANTED, *FREE, 0, True, 500.0)]),  # joined, and it is free
        (Execute, []),  # tried at once: another was faster
        (Execute, [(*TAKEN, 0, False, 500.0)]),  # looked
        (WaitTurn, FIRST_IN_LINE),
    ]
    step: object = next(acquiring)
    for kind, rows in said:
        assert isinstance(step, kind)
        assert counted == []
        step = acquiring.send(reply(rows))
    assert counted == [1]


def test_a_join_that_was_never_sent_leaves_no_doubt_and_no_ticket() -> None:
    acquiring, request = acquiring_within(None)
    assert isinstance(next(acquiring), Execute)
    assert isinstance(acquiring.send(reply([])), WaitTurn)  # refused
    step = acquiring.send(reply(FIRST_IN_LINE))
    assert isinstance(step, Execute)
    assert isinstance(step.command, commands.Join)
    with pytest.raises(SchemaMissing):
        acquiring.throw(StatementError(Fault.SETUP, "upgrade dblock", kind=SchemaMissing))
    assert request.tickets == []


def away(now: float) -> StatementError:
    failure = StatementError(Fault.UNREACHABLE, "it starts up")
    failure.now = now
    return failure


@pytest.mark.parametrize(
    ("matched", "error"),
    [([1], Unavailable), ([0, 1], Unavailable), ([], OutcomeUnknown)],
    ids=["has left", "was passed the name", "cannot leave"],
)
def test_a_waiter_whose_time_is_over_while_the_database_is_away_leaves_the_queue(
    matched: list[int], error: type[Exception]
) -> None:
    """It is told Unavailable only if no release can pass the name on to it any more."""
    acquiring, request = acquiring_within(1.0)
    next(acquiring)
    acquiring.send(reply([]))  # refused
    acquiring.send(reply(FIRST_IN_LINE))
    soon_over = ("report", 2, "another's", "another", THEN, THEN, 0.5, None)
    acquiring.send(reply([(*NOT_GRANTED, *soon_over, 0, False, 500.0)]))  # joined
    acquiring.send(reply(FIRST_IN_LINE))
    look = acquiring.send(Rows([], 0, 0.5, 0.5))  # no notification came
    assert look == Execute(commands.LookQueued("report", "mine", request.tickets[-1]))
    left = acquiring.throw(away(1.0))
    assert left == Execute(commands.Leave("report", "mine", request.tickets[-1]))
    if not matched:
        assert acquiring.throw(away(2.1)) == Disown(tuple(request.tickets))
    for number in matched[:-1]:
        acquiring.send(Rows([], number, 1.1, 1.1))
    with pytest.raises(error):
        acquiring.send(Rows([], matched[-1] if matched else 0, 1.2, 1.2))
    assert bool(request.tickets) is (error is OutcomeUnknown)


def acquiring_once_lost(
    end: commands.EndSession | None, *ended: Rows
) -> Generator[Step, Rows, Held | Refused]:
    """One whose first reply was lost, and who has looked and waits since."""
    acquiring, _ = acquiring_within(None, 0.0)
    assert isinstance(next(acquiring), Execute)
    step: object = acquiring.throw(StatementError(Fault.DISCONNECTED, "lost", end=end))
    for number, answer in enumerate(ended):
        if number > 0:
            assert isinstance(step, Sleep)
            step = acquiring.send(answer)
        assert end is not None
        assert step == Execute(end)
        step = acquiring.send(answer)
    assert step == Execute(Look(("report",)))
    step = acquiring.send(reply([TAKEN]))
    assert isinstance(step, WaitTurn)
    assert isinstance(acquiring.send(reply([(None, False)])), Sleep)
    return acquiring


@pytest.mark.parametrize(
    ("end", "ended", "error"),
    [
        (END, [GONE], Unavailable),
        (END, [THERE, GONE], Unavailable),
        (END, [THERE, STILL_THERE], OutcomeUnknown),
        (None, [], OutcomeUnknown),
    ],
    ids=["is gone", "is gone in a moment", "is there for long", "cannot be ended"],
)
def test_a_doubt_is_closed_by_a_look_once_its_session_is_gone(
    end: commands.EndSession | None, ended: Sequence[Rows], error: type[Exception]
) -> None:
    acquiring = acquiring_once_lost(end, *ended)
    step = acquiring.send(SLEPT)
    assert step == Execute(Look(("report",)))
    away = StatementError(Fault.UNREACHABLE, "away")
    away.now = 1.0
    with pytest.raises(error):
        acquiring.throw(away)


@pytest.mark.parametrize("lost", [True, False])
def test_a_row_that_is_in_use_may_have_a_lost_grant(lost: bool) -> None:
    """As where a commit waits for a replica in a session that cannot be ended: no one sees it."""
    request = LeaseRequest("report", "mine", "me", 30.0)
    renounce(request, lost=lost)
    exchange = Exchange(DIALECT, "report", 0.0, None, 1.0, 0.0)
    returning = reading(DIALECT, return_all(exchange, request, 0.0))
    assert next(returning) == Execute(commands.PassOn("report", "mine", True))
    busy = StatementError(Fault.BUSY, "its row is in use")
    busy.now = 1.0
    if not lost:
        assert returning.throw(busy) == Execute(Look(("report",)))
    with pytest.raises(StopIteration) as ended:
        _ = returning.throw(busy) if lost else returning.send(reply([FREE]))
    assert isinstance(ended.value.value, Unavailable) is lost
    assert bool(request.unreturned) is lost


def test_what_is_granted_is_believed_for_what_remained_of_it() -> None:
    """A try that cannot be stopped may be granted in a long wait: not when it was sent, not now."""
    acquiring = acquiring_once_lost(None)
    assert acquiring.send(SLEPT) == Execute(Look(("report",)))
    step = acquiring.send(Rows([FREE], 1, 50.0, 51.0, "server"))
    assert isinstance(step, Execute)
    with pytest.raises(StopIteration) as told:
        acquiring.send(Rows([(3, 18.0, None)], 1, 53.0, 54.0, "server"))
    assert told.value.value == Held(3, Term(53.0 - 12.0, 30.0), "server")


def renewing_what_is_found() -> Generator[Step, Rows, Held | Refused]:
    """One that has found its token there, and asks for the renewal that proves it."""
    acquiring = acquiring_once_lost(None)
    assert acquiring.send(SLEPT) == Execute(Look(("report",)))
    mine = ("report", 3, "mine", "me", THEN, THEN, 20.0, None)
    step = acquiring.send(Rows([mine], 1, 50.0, 51.0, "server"))
    assert isinstance(step, Execute)
    step = acquiring.send(Rows([], 0, 52.0, 53.0, "server"))  # it is taken: by this very hold
    assert step == Execute(Look(("report",)))
    step = acquiring.send(Rows([(*mine[:-1], 18.0)], 1, 53.0, 54.0, "server"))
    assert isinstance(step, Execute)
    assert step.command == commands.Renew((Renewal("report", "mine", 30.0),))
    return acquiring


def test_what_is_found_is_renewed_and_believed_from_then_on() -> None:
    acquiring = renewing_what_is_found()
    with pytest.raises(StopIteration) as told:
        acquiring.send(Rows([("mine", 3)], 1, 55.0, 56.0, "server"))
    assert told.value.value == Held(3, Term(55.0, 30.0), "server", contended=True)


def test_what_is_found_is_given_back_when_its_renewal_is_told_too_late() -> None:
    acquiring = renewing_what_is_found()
    step = acquiring.send(Rows([("mine", 3)], 1, 55.0, 86.0, "server"))
    assert step == Execute(commands.PassOn("report", "mine"))
