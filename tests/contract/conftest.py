"""Fixtures over the `db` of every kind, in every world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import Counter, Locks
from dblock.protocol.sharing import SharedAttempt
from tests.conftest import KINDS, lent, needed
from tests.contract.apart import THREADS_ONLY, kinds
from tests.contract.renewals import Renewals
from tests.contract.shop import Base, Product
from tests.lending import Database
from tests.support import SECONDS, Facts, new_session
from tests.worlds.behind import timed
from tests.worlds.portal import WORLDS
from tests.worlds.world import World

NewLocks = Callable[..., Locks]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each case in every world, on every kind of database; `apart` has the exceptions."""
    file = metafunc.module.__name__.rpartition(".")[2]
    case = f"{file}::{metafunc.function.__name__}"
    worlds = [world for world in WORLDS if world == "threads" or case not in THREADS_ONLY]
    missing = needed(metafunc, "world", "db")
    if missing == {"world", "db"}:
        both = [(world, kind) for world in worlds for kind in kinds(world, file, case)]
        metafunc.parametrize(("world", "db"), both, indirect=True)
    elif missing == {"world"}:
        metafunc.parametrize("world", worlds, indirect=True)
    elif missing == {"db"}:
        metafunc.parametrize("db", KINDS, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


db = pytest.fixture(lent)


@pytest.fixture
def patient_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers go past no writer that came before them, however late a busy machine shows it."""
    monkeypatch.setattr(SharedAttempt, "patient", SECONDS)


@pytest.fixture
def new_locks(db: Database, world: World, times: dict[str, float]) -> Iterator[NewLocks]:
    """Makes Locks as other programs on the same database would have them."""
    with ExitStack() as stack:

        def make(**options: Any) -> Locks:
            return stack.enter_context(timed(world.locks(db.locks_url, **options), **times))

        yield make


@pytest.fixture
def locks(new_locks: NewLocks) -> Locks:
    return new_locks()


@pytest.fixture
def others(new_locks: NewLocks) -> Locks:
    """Those of another program."""
    return new_locks(label="others")


@pytest.fixture
def engine(db: Database, world: World) -> Iterator[Engine]:
    """The user's own."""
    made = world.engine(db.users_url)
    yield made
    made.dispose()


@pytest.fixture
def facts(engine: Engine) -> Facts:
    return Facts(engine)


@pytest.fixture
def stock(locks: Locks, engine: Engine) -> Counter:
    """Of products 1 and 2, with 10 of each."""
    Base.metadata.create_all(engine)
    with new_session(engine) as session:
        session.add_all([Product(id=1, stock=10), Product(id=2, stock=10)])
        session.commit()
    return locks.counter(Product.stock, key=Product.id)


@pytest.fixture
def renewals(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> Renewals:
    return Renewals(locks, monkeypatch)
