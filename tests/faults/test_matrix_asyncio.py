"""The matrix's rows of a lease by itself, and of those who wait, with the drivers of asyncio.

What is decided after a fault is the same code in every world, and the whole matrix tests it. What
differs is how a driver's wait ends, and whether what it leaves is ended too: so the faults are
those in which an answer does not come. A lost request ends a wait as a lost reply does, a restart
as a reset. The user's own transactions are in test_settling, in both worlds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import OwnServers
from tests.faults.matrix.expected import ROWS, Fault
from tests.faults.matrix.expected_of_waiting import rows_on
from tests.faults.matrix.site import KINDS, Site, unexpected
from tests.worlds.portal import Asyncio

STATEMENTS = {("acquire (free)", "grant"), ("renew", "renew"), ("release", "release")}
WAITING = {
    ("wait", "listen"),
    ("wait", "call"),
    ("wait", "wait in the server"),
    ("wait", "join"),
    ("wait (fair)", "join"),
    ("wait", "register"),
    ("wait (timeout)", "leave"),
    ("wait (timeout, fair)", "leave"),
    ("wait (timeout)", "unregister"),
    ("release (waited for)", "release"),
    ("release (waited for)", "pass on"),
}
FAULTS = (Fault.REPLY, Fault.RESET, Fault.DEAF, Fault.STOPPED)
CHOSEN = [row for row in ROWS if (row.operation, row.statement) in STATEMENTS]


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        server = OwnServers(stack)(KINDS[request.param])
        yield Site(server, stack.enter_context(Asyncio()))


def test_they_are_there() -> None:
    assert len(CHOSEN) == len(STATEMENTS)


def test_those_who_wait_are_there() -> None:
    assert {(row.operation, row.statement) for kind in KINDS for row in rows_on(kind)} >= WAITING


@pytest.mark.parametrize("fault", FAULTS)
def test_those_who_wait_meet(site: Site, fault: Fault) -> None:
    rows = rows_on(site.server.kind, fault)
    chosen = [row for row in rows if (row.operation, row.statement) in WAITING]
    assert unexpected(site, fault, chosen) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_statement_meets(site: Site, fault: Fault) -> None:
    assert unexpected(site, fault, CHOSEN) == []
