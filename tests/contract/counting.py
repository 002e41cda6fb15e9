"""A column with one number in it, and what becomes of changing that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    create_engine,
)
from sqlalchemy.engine import Engine
from sqlalchemy.types import TypeEngine

from dblock import Counter
from tests.conftest import Database
from tests.support import Borrowed, borrowed

KEY = "order:1"
Change = Callable[[Borrowed], object]


def made(
    db: Database,
    kind: type[TypeEngine[Any]] | TypeEngine[Any],
    value: object,
    version: int | None = 0,
    *,
    really: str | None = None,
) -> Table:
    """A table with one row, made by another program: of this type, or ``really`` of another."""
    table = Table(
        "thing",
        MetaData(),
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("n", kind),
        Column("version", SmallInteger),
    )
    engine = create_engine(db.url)
    with engine.begin() as connection:
        if really is None:
            table.create(connection)
        else:
            columns = f"id INTEGER PRIMARY KEY, n {really}, version SMALLINT"
            connection.exec_driver_sql(f"CREATE TABLE thing ({columns})")
        row = ", ".join("NULL" if number is None else str(number) for number in (value, version))
        connection.exec_driver_sql(f"INSERT INTO thing VALUES (1, {row})")
    engine.dispose()
    return table


def refused(engine: Engine, counter: Counter, error: type[Exception], change: Change) -> str:
    """A change is refused and nothing is left of it, no key either; and its transaction goes on.

    Return what was said.
    """
    with borrowed(engine, "connection") as on:
        before = counter.value(on, 1)
        with pytest.raises(error) as caught:
            change(on)
        assert counter.value(on, 1) == before
        if before is not None:
            there, back = (counter.take, counter.add)[:: 1 if before > 0 else -1]
            assert there(on, 1, 1, idempotency_key=KEY) is True
            assert counter.value(on, 1) != before
            on.commit()
            assert back(on, 1, 1) is True
            on.commit()
        assert counter.value(on, 1) == before
    return str(caught.value)


def now(engine: Engine, counter: Counter, change: Change) -> Any:
    """A change is made, and told to be; return what is there then."""
    with borrowed(engine, "connection") as on:
        assert change(on) is True
        on.commit()
        return counter.value(on, 1)
