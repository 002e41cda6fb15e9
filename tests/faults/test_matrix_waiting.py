"""The fault matrix of those who wait, on every database that they wait on in a way of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import OwnServers
from tests.faults.matrix.expected import Fault
from tests.faults.matrix.expected_of_waiting import BEFORE, WAITING_ROWS, rows_on
from tests.faults.matrix.site import CALL, WAITED_ON, Site, unexpected
from tests.faults.matrix.waiting import WAITING

CELLS = [
    pytest.param(kind, fault, id=f"{kind}-{fault}")
    for kind in WAITED_ON
    for fault in Fault
    if rows_on(kind, fault)
]


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, Site]]:
    with ExitStack() as stack:
        servers = OwnServers(stack)
        yield {kind: Site(servers(WAITED_ON[kind])) for kind in WAITED_ON}


@pytest.mark.parametrize("kind", WAITED_ON)
def test_every_statement_of_those_who_wait_has_its_row(sites: dict[str, Site], kind: str) -> None:
    operations = {row.operation for row in rows_on(kind)}
    sent = {request for one in operations for request in sites[kind].requests(one)}
    shown = {row.statement for row in rows_on(kind)}
    assert sent - set(BEFORE) == shown - {*BEFORE, CALL}


@pytest.mark.parametrize(("kind", "fault"), CELLS)
def test_every_statement_meets(sites: dict[str, Site], kind: str, fault: Fault) -> None:
    assert unexpected(sites[kind], fault, rows_on(kind, fault)) == []


def test_every_operation_is_there() -> None:
    assert {row.operation for row in WAITING_ROWS} == set(WAITING)
