"""Counters over columns of every kind: what they count, and what finds their row."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest
from sqlalchemy import Column, Integer, MetaData, Numeric, String, Table, Uuid
from sqlalchemy.engine import Engine

from dblock import Locks, NotEnough


def test_decimals(locks: Locks, engine: Engine) -> None:
    table = Table(
        "account",
        MetaData(),
        Column("owner", String(50), primary_key=True),
        Column("money", Numeric(12, 2, asdecimal=True), nullable=False),
    )
    table.create(engine)
    money = locks.counter(table.c.money, key=table.c.owner)
    with engine.begin() as connection:
        connection.execute(table.insert(), {"owner": "Zoë's 100%", "money": Decimal("10.50")})
        assert money.take(connection, "Zoë's 100%", Decimal("0.25"))
        assert money.value(connection, "Zoë's 100%") == Decimal("10.25")
        with pytest.raises(NotEnough) as caught:
            money.take(connection, "Zoë's 100%", Decimal("10.50"))
        assert caught.value.available == Decimal("10.25")
        assert isinstance(caught.value.available, Decimal)
        assert money.compare_and_update(
            connection, "Zoë's 100%", seen=Decimal("10.25"), new=Decimal("1.00")
        )
        assert money.update(connection, "Zoë's 100%", lambda m: m * 2) == Decimal("2.00")


def test_uuids(locks: Locks, engine: Engine) -> None:
    table = Table(
        "part",
        MetaData(),
        Column("key", Uuid(), primary_key=True),
        Column("order", Integer, nullable=False),  # a word of SQL's own
    )
    table.create(engine)
    parts, key = locks.counter(table.c.order, key=table.c.key), uuid.uuid4()
    with engine.begin() as connection:
        connection.execute(table.insert(), {"key": key, "order": 3})
        assert parts.take(connection, key, 2)
        assert parts.value(connection, key) == 1
        with pytest.raises(LookupError):
            parts.take(connection, uuid.uuid4())


def test_wrong_columns(locks: Locks) -> None:
    one, two = (
        Table(name, MetaData(), Column("id", Integer), Column("n", Integer)) for name in ("x", "y")
    )
    with pytest.raises(ValueError, match="columns of one table"):
        locks.counter(one.c.n, key=two.c.id)
    with pytest.raises(ValueError, match="columns of one table"):
        locks.counter(one.c.n, key=one.c.id, version=two.c.n)
    with pytest.raises(TypeError, match="a Column or a mapped attribute, not str"):
        locks.counter("n", key=one.c.id)  # type: ignore[arg-type]
