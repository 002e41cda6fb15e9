"""A waiter that cannot be seen waits all the same, and has nothing to remove."""

from __future__ import annotations

import math

import pytest

from dblock import Timeouts
from dblock.dialects import DIALECTS
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.steps import Execute
from dblock.protocol.timing import Timing
from dblock.protocol.waiters import Caller, Waiter

NOW = 1000.0
AFTER = Timing().visible_after


def waiter() -> Waiter:
    return Waiter(
        DIALECTS["sqlite"](None, "dblock_", Timeouts()),
        "report",
        "lease",
        NOW,
        Caller(
            owner=lambda: "somebody",
            holds=dict,
            new_id=lambda: "f" * 32,
            seen={},
        ),
    )


@pytest.mark.parametrize("fault", list(Fault))
def test_a_row_that_was_not_written_is_not_removed(fault: Fault) -> None:
    one = waiter()
    note = one.note(NOW + AFTER)
    assert isinstance(next(note), Execute)
    with pytest.raises(StopIteration):
        note.throw(StatementError(fault, "as the test wants it"))
    assert (one.id is None) == (fault is not Fault.DISCONNECTED)
    assert (one.next == math.inf) == (fault in (Fault.SCHEMA, Fault.PRIVILEGE))
