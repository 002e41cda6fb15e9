"""Fixtures over the `db` of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine

from dblock import Locks
from tests.conftest import Database
from tests.support import Facts

NewLocks = Callable[..., Locks]


@pytest.fixture
def new_locks(db: Database) -> Iterator[NewLocks]:
    """Makes Locks as other programs on the same database would have them."""
    with ExitStack() as stack:

        def make(**options: Any) -> Locks:
            return stack.enter_context(Locks(db.url, **options))

        yield make


@pytest.fixture
def locks(new_locks: NewLocks) -> Locks:
    return new_locks()


@pytest.fixture
def others(new_locks: NewLocks) -> Locks:
    """Those of another program."""
    return new_locks(label="others")


@pytest.fixture
def engine(db: Database) -> Iterator[Engine]:
    """The user's own."""
    made = create_engine(db.url)
    yield made
    made.dispose()


@pytest.fixture
def facts(engine: Engine) -> Facts:
    return Facts(engine)
