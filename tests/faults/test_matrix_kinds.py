"""The fault matrix of the other kinds of locks, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import OwnServers
from tests.faults.matrix.expected import Fault, statements
from tests.faults.matrix.expected_of_kinds import ROWS_OF_KINDS
from tests.faults.matrix.expected_of_waiting import rows_on
from tests.faults.matrix.kinds import OF_KINDS
from tests.faults.matrix.site import KINDS, Site, unexpected


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(OwnServers(stack)(KINDS[request.param]))


@pytest.mark.parametrize("operation", OF_KINDS)
def test_every_statement_of_an_operation_has_its_row(site: Site, operation: str) -> None:
    rows = rows_on(site.server.kind, rows=ROWS_OF_KINDS)
    assert site.requests(operation) == statements(operation, rows)


@pytest.mark.parametrize("fault", Fault)
def test_every_statement_meets(site: Site, fault: Fault) -> None:
    rows = rows_on(site.server.kind, fault, ROWS_OF_KINDS)
    assert unexpected(site, fault, rows) == []
