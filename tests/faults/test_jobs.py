"""A job's record when a request or a reply is lost: it is right, and nothing runs twice."""

from __future__ import annotations

import pytest

from tests.faults.conftest import Net
from tests.faults.proxy import Lose
from tests.patience import SECONDS

# Bytes that occur in one statement only.
BEGIN = b"slot, fence, owner, started_at"
END = b"SET ended_at"


@pytest.mark.parametrize("statement", [BEGIN, END])
@pytest.mark.parametrize("what", [Lose.REQUEST, Lose.REPLY])
def test_what_is_lost_is_repeated(net: Net, statement: bytes, what: Lose) -> None:
    runs: list[int] = []

    @net.locks.cron("nightly", once_for="slot")
    def nightly() -> int:
        runs.append(nightly.lease.fence)
        return len(runs)

    lost = net.proxy.lose(what, statement)
    assert nightly() == 1
    assert lost.done.wait(SECONDS)
    assert nightly() is None
    last = net.direct.last_run("nightly")
    assert last is not None
    assert (last.slot, last.exit_status) == ("slot", 0)
    assert not net.direct.show("nightly").held
