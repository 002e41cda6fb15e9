"""The fixtures under test, and a database of the application's that is not reached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    """The application's own database, without a table of dblock's."""
    made = create_engine("sqlite://")
    yield made
    made.dispose()
