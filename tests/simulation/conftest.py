"""The stores, made once for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import find_or_skip
from tests.simulation.folder import prepared
from tests.simulation.stores.postgresql import PostgreSQLStore
from tests.simulation.stores.postgresql_server import SimulatedServer


@pytest.fixture(scope="session")
def folder() -> Iterator[None]:
    """Let the stores of this process have their files: each store is made once, in one folder."""
    with prepared():
        yield


@pytest.fixture(scope="session")
def simulated_postgresql() -> Iterator[SimulatedServer]:
    with find_or_skip(SimulatedServer) as server:
        yield server


@pytest.fixture(scope="session")
def durable(simulated_postgresql: SimulatedServer) -> PostgreSQLStore:
    return PostgreSQLStore(simulated_postgresql)


@pytest.fixture(scope="session")
def volatile(simulated_postgresql: SimulatedServer) -> PostgreSQLStore:
    return PostgreSQLStore(simulated_postgresql, volatile=True)


@pytest.fixture(scope="session")
def pooled(simulated_postgresql: SimulatedServer) -> PostgreSQLStore:
    return PostgreSQLStore(simulated_postgresql, pooled=True)
