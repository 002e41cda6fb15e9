"""Why a hold is lost, from what is on its name now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dblock.protocol.inspect import loss_of
from dblock.protocol.lease import Held
from dblock.protocol.state import LockRow
from dblock.protocol.term import Term

HELD = Held(7, Term(100.0, 30.0))  # it ran out at 130; clocks may differ by 3 by then
SEEN = 150.0
THEN = datetime(2026, 1, 1, tzinfo=UTC)


def state(age: float, left: float, token: str | None = "another's") -> LockRow:
    """A later hold that was granted, and runs out or was given back, so many seconds from then."""
    until = THEN + timedelta(seconds=age + left)
    return LockRow("report", 9, token, "another", THEN, until, left)


@pytest.mark.parametrize("token", ["another's", None])
@pytest.mark.parametrize(("granted", "left"), [(101.0, 10.0), (126.0, 10.0), (126.0, -5.0)])
def test_another_had_it_before_it_expired(granted: float, left: float, token: str | None) -> None:
    """However late that is found out."""
    loss = loss_of(state(SEEN - granted, left, token), "report", "mine", HELD, SEEN)
    assert loss is not None
    assert loss.reason == "forced"
    assert "fence 7 was followed by 9" in str(loss)


@pytest.mark.parametrize("left", [10.0, -5.0])
@pytest.mark.parametrize("granted", [129.9, 131.0])
def test_another_had_it_after_it_expired(granted: float, left: float) -> None:
    """Also where the database's clock has gone a little faster than ours."""
    loss = loss_of(state(SEEN - granted, left), "report", "mine", HELD, SEEN)
    assert loss is not None
    assert loss.reason == "taken over"


def test_its_own_token_is_no_loss_whatever_the_fence() -> None:
    """A member of a quorum may have granted a larger fence than the hold's."""
    assert loss_of(state(40.0, 10.0, "mine"), "report", "mine", HELD, SEEN) is None
    loss = loss_of(state(40.0, -5.0, "mine"), "report", "mine", HELD, SEEN)
    assert loss is not None
    assert loss.reason == "expired"
