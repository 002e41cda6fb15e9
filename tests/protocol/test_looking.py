"""Looks that nothing depends on, fed with failures instead of a database."""

from __future__ import annotations

import pytest

from dblock import Timeouts
from dblock.dialects import SQLite
from dblock.errors import DBLockError
from dblock.protocol import commands
from dblock.protocol.exchange import Exchange
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.retry import PAUSE
from dblock.protocol.steps import Execute, Procedure, Reply, Sleep

DIALECT = SQLite(None, "dblock_", Timeouts(query=2.0))
ASKED = commands.UnlockAll()
START = 100.0


def looking() -> Procedure[int]:
    return Exchange(DIALECT, "report", START, None, 0.0, START).read(ASKED)


def at(now: float) -> Reply[int]:
    return Reply(1, now, now)


def failed(fault: Fault, now: float) -> StatementError:
    failure = StatementError(fault, "as the test wants it")
    failure.now = now
    return failure


def test_what_is_in_use_is_waited_for() -> None:
    procedure = looking()
    assert next(procedure) == Execute(ASKED)
    assert procedure.throw(failed(Fault.BUSY, START + 1)) == Sleep(PAUSE)
    assert procedure.send(at(START + 1 + PAUSE)) == Execute(ASKED)
    with pytest.raises(StopIteration) as ended:
        procedure.send(at(START + 1 + PAUSE))
    assert ended.value.value == 1


def test_as_long_as_for_any_statement() -> None:
    procedure = looking()
    next(procedure)
    with pytest.raises(DBLockError):
        procedure.throw(failed(Fault.BUSY, START + 2))


@pytest.mark.parametrize("fault", [Fault.CANCELED, Fault.SERIALIZATION, Fault.UNREACHABLE])
def test_all_else_is_told_at_once(fault: Fault) -> None:
    procedure = looking()
    next(procedure)
    with pytest.raises(DBLockError):
        procedure.throw(failed(fault, START))
