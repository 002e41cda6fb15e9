"""The fault matrix on real servers, and its published table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import OwnServers
from tests.faults.matrix.expected import ROWS, Fault, statements
from tests.faults.matrix.operations import OPERATIONS
from tests.faults.matrix.page import PAGE, published
from tests.faults.matrix.site import KINDS, Site, unexpected


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(OwnServers(stack)(KINDS[request.param]))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_statement_of_an_operation_has_its_row(site: Site, operation: str) -> None:
    assert site.requests(operation) == statements(operation)


@pytest.mark.parametrize("fault", Fault)
def test_every_statement_meets(site: Site, fault: Fault) -> None:
    assert unexpected(site, fault, ROWS) == []


def test_the_published_table_is_what_is_demanded() -> None:
    assert published() in PAGE.read_text(), "run: python -m tests.golden matrix"
