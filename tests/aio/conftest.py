"""Fixtures over the `db` of every kind, for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import Locks
from tests.aio.support import async_url
from tests.conftest import BORROWED, KINDS, kind_for, lent, needed
from tests.lending import Database
from tests.support import SECONDS, Facts

NewLocks = Callable[..., Any]

# What they test is above the drivers; what a driver does with a cancellation is in the others.
ONE_KIND = {"test_loss"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if needed(metafunc, "db"):
        name = metafunc.function.__name__
        file = metafunc.module.__name__.rpartition(".")[2]
        more = BORROWED["asyncio"] if file == "test_borrowed" else ()
        kinds = [kind_for(name)] if file in ONE_KIND else [*KINDS, *more]
        metafunc.parametrize("db", kinds, indirect=True)


db = pytest.fixture(lent)


@pytest.fixture
def url(db: Database) -> str:
    return async_url(db.users_url)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine to its end, in a loop of its own, which must not complain."""

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        complaints: list[dict[str, Any]] = []

        async def main() -> Any:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(SECONDS):
                return await coroutine

        result = asyncio.run(main())
        assert complaints == []
        return result

    return run


@pytest.fixture
def direct(db: Database) -> Iterator[Locks]:
    """Another program's, which is not asyncio's."""
    with Locks(db.url, label="others") as made:
        yield made


@pytest.fixture
def facts(engine: Engine) -> Facts:
    return Facts(engine)
