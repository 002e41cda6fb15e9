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
from tests.faults.matrix.expected import ROWS, Fault, Row
from tests.faults.matrix.site import KINDS, Site
from tests.faults.test_matrix import cell
from tests.worlds.portal import Asyncio

STATEMENTS = {("acquire (free)", "grant"), ("renew", "renew"), ("release", "release")}
FAULTS = (Fault.REPLY, Fault.RESET, Fault.DEAF, Fault.STOPPED)
CELLS = [
    cell(row, fault)
    for row in ROWS
    if (row.operation, row.statement) in STATEMENTS
    for fault in FAULTS
]


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        server = OwnServers(stack)(KINDS[request.param])
        yield Site(server, stack.enter_context(Asyncio()))


def test_they_are_there() -> None:
    assert len(CELLS) == len(STATEMENTS) * len(FAULTS)


@pytest.mark.parametrize(("row", "fault"), CELLS)
def test_cell(site: Site, row: Row, fault: Fault) -> None:
    outcome = site.run(row, fault)
    assert outcome.fits(row.cells[fault]), f"expected {row.cells[fault]}, but {outcome}"
