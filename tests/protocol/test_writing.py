"""Writes that replace each other, fed with failures instead of a database."""

from __future__ import annotations

import pytest

from dblock import OutcomeUnknown, SchemaMissing, Timeouts, Unavailable
from dblock.dialects import SQLite
from dblock.protocol import commands
from dblock.protocol.doubt import Doubt
from dblock.protocol.exchange import Exchange
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Held, ReleaseRequest
from dblock.protocol.release import release
from dblock.protocol.retry import PAUSE
from dblock.protocol.steps import Execute, Procedure, Reply, Sleep
from dblock.protocol.term import Term
from dblock.protocol.writing import write

DIALECT = SQLite(None, "dblock_", Timeouts())
WRITE = commands.UnlockAll()
END = commands.EndSession(1, "the lost session")
PATIENCE = 4.0


def exchange() -> Exchange:
    return Exchange(DIALECT, "report", 0.0, None, PATIENCE, 0.0)


def writing(before: Doubt) -> Procedure[Reply[int]]:
    return write(exchange(), WRITE, before)


def reply(now: float = 0.0) -> Reply[int]:
    return Reply(0, now, now)


def cut() -> StatementError:
    return StatementError(Fault.DISCONNECTED, "cut", end=END)


def test_the_session_of_a_lost_write_is_ended_before_the_next_try() -> None:
    before = Doubt()
    procedure = writing(before)
    assert next(procedure) == Execute(WRITE)
    assert procedure.throw(cut()) == Execute(END)
    assert procedure.send(reply()) == Execute(WRITE)
    assert before == Doubt()
    with pytest.raises(StopIteration):
        procedure.send(reply())


def test_and_before_the_next_write() -> None:
    before = Doubt([END])
    procedure = writing(before)
    assert next(procedure) == Execute(END)
    assert procedure.send(reply()) == Execute(WRITE)


def test_two_threads_write_after_a_lost_write() -> None:
    """Both end its session, and neither stumbles over the other."""
    before = Doubt([END])
    one, two = writing(before), writing(before)
    assert next(one) == next(two) == Execute(END)
    assert one.send(reply()) == two.send(reply()) == Execute(WRITE)
    assert before == Doubt()


@pytest.mark.parametrize("lost", [False, True])
def test_a_refusal_is_told_unless_a_try_was_lost_before(lost: bool) -> None:
    procedure = writing(Doubt())
    next(procedure)
    if lost:
        procedure.throw(cut())
        procedure.send(reply())
    with pytest.raises(OutcomeUnknown if lost else Unavailable) as told:
        procedure.throw(StatementError(Fault.REFUSED, "the disk is full"))
    assert ("cut" in str(told.value)) is lost


def test_tries_that_are_cut_off_come_one_after_a_pause() -> None:
    procedure = writing(Doubt())
    next(procedure)
    for paused in (False, True, True):
        step = procedure.throw(cut())
        if paused:
            assert step == Sleep(PAUSE)
            step = procedure.send(reply())
        assert step == Execute(END)
        assert procedure.send(reply()) == Execute(WRITE)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (StatementError(Fault.REFUSED, "the disk is full"), Unavailable),
        (StatementError(Fault.SETUP, "upgrade dblock", kind=SchemaMissing), SchemaMissing),
    ],
)
@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_release_that_is_refused_after_a_lost_one_is_unknown(
    in_doubt: bool, failure: StatementError, error: type[Exception]
) -> None:
    held = Held(1, Term(0.0, 30.0))
    request = ReleaseRequest("report", "token", held, in_doubt=in_doubt)
    procedure = release(exchange(), request)
    next(procedure)
    with pytest.raises(OutcomeUnknown if in_doubt else error):
        procedure.throw(failure)
