"""How tries are counted, fed with replies instead of a database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tenacity import RetryCallState

from dblock import RetryPolicy, Timeouts
from dblock.dialects import PostgreSQL
from dblock.protocol.acquiring import acquire
from dblock.protocol.leasing import Claim
from dblock.protocol.registering import Waiter
from dblock.protocol.steps import Reply, Run, Stand

Rows = Sequence[Sequence[Any]]

DIALECT = PostgreSQL(None, "dblock_", Timeouts())
THEN = datetime(2026, 1, 1)
FREE = ("report", 1, None, None, THEN, THEN, -1.0)
TAKEN = ("report", 2, "another's", "another", THEN, THEN, 30.0)
NOT_GRANTED = (None, None, None)
FIRST_IN_LINE: Rows = [("ticket", True)]


def reply(rows: Rows) -> Reply:
    return Reply(rows, len(rows), 0.0, 0.0, "server")


def test_a_name_that_becomes_free_while_it_is_joined_for_is_tried_for_in_the_same_try() -> None:
    counted: list[int] = []

    def stop(state: RetryCallState) -> bool:
        counted.append(state.attempt_number)
        return False

    waiter = Waiter(DIALECT, "report", "lease", 0.0, str, dict, str, {})
    claim = Claim("report", "mine", "me", 30.0)
    policy = RetryPolicy(stop=stop)
    acquiring = acquire(DIALECT, claim, policy, fair=False, wait=None, patience=1.0, waiter=waiter)
    said: list[tuple[type[object], Rows]] = [
        (Stand, [(None, False)]),  # nobody knows yet which server can call
        (Run, []),  # refused
        (Run, [(*TAKEN, None, False)]),  # looked
        (Stand, FIRST_IN_LINE),
        (Run, [(*NOT_GRANTED, *FREE, 0, True)]),  # joined, and it is free
        (Run, [(*NOT_GRANTED, *TAKEN, 0, False)]),  # tried at once: another was faster
        (Stand, FIRST_IN_LINE),
    ]
    step: object = next(acquiring)
    for kind, rows in said:
        assert isinstance(step, kind)
        assert counted == []
        step = acquiring.send(reply(rows))
    assert counted == [1]
