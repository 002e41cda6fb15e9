"""Services for the tests of a process, and for one test alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dblock import Locks
from tests.conftest import KINDS, NewDatabase
from tests.contrib.serve.process import Client, Service

Serve = Callable[..., Service]


class Shared:
    """A service for each kind of database, started when a test first needs it."""

    def __init__(self, new_database: NewDatabase, stack: ExitStack) -> None:
        self._new_database = new_database
        self._stack = stack
        self._services: dict[str, Service] = {}

    def __call__(self, kind: str) -> Service:
        if kind not in self._services:
            database = self._new_database(kind, migrated=True)
            service = Service(database.url)
            self._stack.callback(service.close)
            self._services[kind] = service
        return self._services[kind]


@pytest.fixture(scope="session")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("served")
        made = NewDatabase(request, directory, stack, with_server=True)
        yield Shared(made, stack)


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest, shared: Shared) -> Service:
    """A service that other tests use too. Their names are others."""
    return shared(request.param)


@pytest.fixture
def client(service: Service) -> Client:
    return service.client()


@pytest.fixture
def name() -> str:
    return f"name {secrets.token_hex(8)}"


@pytest.fixture
def locks(service: Service) -> Iterator[Locks]:
    """A Python program beside the service."""
    with Locks((service.directory / "url").read_text()) as made:
        yield made


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start services for this test alone."""
    with ExitStack() as stack:

        def serve(*arguments: str, **options: str) -> Service:
            made = Service(*arguments, **options)
            stack.callback(made.close)
            return made

        yield serve
