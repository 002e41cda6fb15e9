"""The guard, fed with replies instead of a database."""

from __future__ import annotations

import pytest

from dblock import LockLost, Timeouts
from dblock.dialects import SQLite
from dblock.protocol.exchange import Exchange
from dblock.protocol.guard import guard
from dblock.protocol.lease import Held
from dblock.protocol.term import Term
from tests.protocol.rows import Rows, reading

TTL = 30.0
ROW = ("report", 7, "token", None, None, None, TTL, None)


@pytest.mark.parametrize("server", ["one", "other", None])
def test_another_server_is_not_believed(server: str | None) -> None:
    dialect = SQLite(None, "dblock_", Timeouts())
    held = Held(7, Term(100.0, TTL), "one")
    protocol = reading(
        dialect, guard(Exchange(dialect, "report", 101.0, None, 5.0, 101.0), "token", lambda: held)
    )
    next(protocol)
    protocol.send(Rows([(7,)], 1, 101.0, 102.0))  # in the user's transaction
    looked = Rows([ROW], 1, 102.0, 103.0, server)
    if server == "other":
        with pytest.raises(LockLost) as caught:
            protocol.send(looked)
        assert caught.value.reason == "failover"
    else:
        with pytest.raises(StopIteration):
            protocol.send(looked)


@pytest.mark.parametrize("renewed", [True, False])
def test_a_lease_that_is_renewed_meanwhile_is_held(renewed: bool) -> None:
    """The keeper goes on while the guard's statement waits for somebody."""
    dialect = SQLite(None, "dblock_", Timeouts())
    held = Held(7, Term(100.0, TTL))
    protocol = reading(
        dialect, guard(Exchange(dialect, "report", 101.0, None, 5.0, 101.0), "token", lambda: held)
    )
    next(protocol)
    if renewed:
        held = Held(7, Term(120.0, TTL))
    protocol.send(Rows([(7,)], 1, 101.0, 135.0))
    with pytest.raises(StopIteration if renewed else LockLost):
        protocol.send(Rows([ROW], 1, 135.0, 136.0))
