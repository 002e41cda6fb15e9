"""The matrix's rows of a lease by itself, with the drivers of asyncio.

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
from tests.faults.matrix.site import KINDS, Site, unexpected
from tests.worlds.portal import Asyncio

STATEMENTS = {("acquire (free)", "grant"), ("renew", "renew"), ("release", "release")}
FAULTS = (Fault.REPLY, Fault.RESET, Fault.DEAF, Fault.STOPPED)
CHOSEN = [row for row in ROWS if (row.operation, row.statement) in STATEMENTS]


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        server = OwnServers(stack)(KINDS[request.param])
        yield Site(server, stack.enter_context(Asyncio()))


def test_they_are_there() -> None:
    assert len(CHOSEN) == len(STATEMENTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_statement_meets(site: Site, fault: Fault) -> None:
    assert unexpected(site, fault, CHOSEN) == []
