"""What dblock decorates is a function, a partial of one, or an object that can be called."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

from dblock import Locks, retry_on_conflict
from dblock.aio import AsyncLocks
from dblock.contrib.flask import DBLock
from tests.aio.support import async_url
from tests.conftest import Database, NewDatabase


def ship(customer: int, order: int) -> tuple[int, int]:
    """Ship an order."""
    return customer, order


async def ship_later(customer: int, order: int) -> tuple[int, int]:
    """Ship an order."""
    return customer, order


class Shipping:
    """Ships orders of a customer."""

    def __init__(self, customer: int) -> None:
        self.customer = customer

    def __call__(self, order: int) -> tuple[int, int]:
        return self.customer, order


class LaterShipping(Shipping):
    """Ships orders of a customer."""

    async def __call__(self, order: int) -> tuple[int, int]:  # type: ignore[override]
        return self.customer, order


class Listing:
    def __call__(self) -> Iterator[int]:
        yield 7


NAMED = [
    (functools.partial(ship, 7), functools.partial(ship_later, 7), "ship"),
    (Shipping(7), LaterShipping(7), "Shipping"),
    (Shipping(7).__call__, LaterShipping(7).__call__, "__call__"),
    (functools.partial(Shipping(7)), functools.partial(LaterShipping(7)), "Shipping"),
]
each = pytest.mark.parametrize(("sync", "coroutine", "name"), NAMED)


@pytest.fixture
def db(new_database: NewDatabase) -> Database:
    return new_database("sqlite", migrated=True)


@pytest.fixture
def locks(db: Database) -> Iterator[Locks]:
    with Locks(db.url) as made:
        yield made


@each
def test_a_job(locks: Locks, sync: Any, coroutine: Any, name: str) -> None:
    for decorate in (locks.cron("a"), locks.lease("a")):
        job = decorate(sync)
        assert job(8) == (7, 8)
        assert inspect.isfunction(job)
        assert job.__name__ == name
        assert (job.__doc__ or "Ship").startswith("Ship")
        assert job.__module__ == __name__
        assert list(inspect.signature(job).parameters) == ["order"]


@each
def test_a_job_under_await(db: Database, sync: Any, coroutine: Any, name: str) -> None:
    async def main() -> None:
        async with AsyncLocks(async_url(db.url)) as locks:
            for decorate in (locks.cron("a"), locks.lease("a")):
                job = decorate(coroutine)
                assert await job(8) == (7, 8)
                assert inspect.iscoroutinefunction(job)
                assert job.__name__ in (name, f"Later{name}", f"{name}_later")
                with pytest.raises(TypeError, match="not a coroutine function"):
                    decorate(sync)

    asyncio.run(main())


def decorators(locks: Locks) -> list[Callable[[Any], Any]]:
    return [locks.cron("a"), locks.lease("a"), DBLock().locked("a"), retry_on_conflict(Session)]


@pytest.mark.parametrize(
    "lazy", [*(coroutine for _, coroutine, _ in NAMED), Listing(), functools.partial(Listing())]
)
def test_a_body_that_would_run_later(locks: Locks, lazy: Any) -> None:
    for decorate in decorators(locks):
        with pytest.raises(TypeError, match="would return before its body runs"):
            decorate(lazy)


def test_what_cannot_be_called(locks: Locks) -> None:
    under_await: Any = AsyncLocks("sqlite+aiosqlite:///unused.db").cron("a")
    wrong: Any
    for wrong in (None, "ship", classmethod(print)):
        for decorate in (*decorators(locks), under_await):
            with pytest.raises(TypeError, match=r"takes a function, not .*below @classmethod"):
                decorate(wrong)


def test_no_queue_imports_the_function_itself(locks: Locks) -> None:
    """A job of a partial has no place in its module: what is there is not decorated."""
    job = locks.cron("a")(functools.partial(ship, 7))
    assert job.__qualname__ == "ship.<decorated>"  # type: ignore[attr-defined]
