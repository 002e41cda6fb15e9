"""A counter whose column has no room for a change says so, and changes nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import (
    BigInteger,
    Integer,
    Numeric,
    SmallInteger,
    text,
)
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from dblock import Locks, NotEnough, Unsupported
from tests.conftest import Database
from tests.contract.counting import KEY, Change, made, refused
from tests.servers import FAMILY
from tests.support import borrowed

BITS = {"small_integer": 16, "integer": 32, "big_integer": 64}


@pytest.mark.parametrize(
    "kind", [SmallInteger, Integer, BigInteger, Numeric(4, 2)], ids=lambda kind: f"{kind}"
)
def test_no_room_for_more(
    locks: Locks, db: Database, engine: Engine, kind: type[TypeEngine[Any]] | TypeEngine[Any]
) -> None:
    if isinstance(kind, Numeric):
        most: Any = Decimal("99.99")
    else:
        bits = 64 if db.kind == "sqlite" else BITS[kind.__visit_name__]
        most = 2 ** (bits - 1) - 1
    table = made(db, kind, most)
    counter = locks.counter(table.c.n, key=table.c.id, floor=None)
    said = refused(
        engine, counter, OverflowError, lambda on: counter.add(on, 1, 1, idempotency_key=KEY)
    )
    assert f"would leave more than {most}" in said
    calls: list[Change] = [
        lambda on: counter.add(on, 1, most),
        lambda on: counter.add(on, 1, 10 * most),
        lambda on: counter.update(on, 1, lambda value: value + 1),
        lambda on: counter.compare_and_update(on, 1, seen=most, new=most + 1),
    ]
    for call in calls:
        with borrowed(engine, "connection") as on:
            with pytest.raises(OverflowError):
                call(on)
            assert counter.take(on, 1, 1) is True
            assert counter.value(on, 1) == most - 1


@pytest.mark.parametrize("floor", [None, -(10**30)])
def test_no_room_for_less(locks: Locks, db: Database, engine: Engine, floor: int | None) -> None:
    """Neither where the floor is, or would be, below what the column holds."""
    least = -(2**63) if db.kind == "sqlite" else -(2**15)
    table = made(db, SmallInteger, least + 2)
    counter = locks.counter(table.c.n, key=table.c.id, floor=floor)
    with borrowed(engine, "connection") as on:
        with pytest.raises(NotEnough, match=f"less than {least}, the least in SMALLINT") as caught:
            counter.take(on, 1, 3, idempotency_key=KEY)
        assert caught.value.available == 2
        assert counter.take(on, 1, 2, idempotency_key=KEY) is True
        assert counter.value(on, 1) == least


UNSIGNED = [("INT UNSIGNED", 2**32 - 1), ("BIGINT UNSIGNED", 2**64 - 1), ("TINYINT UNSIGNED", 255)]
MODES = ["", "STRICT_TRANS_TABLES", "NO_UNSIGNED_SUBTRACTION"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("really", "most"), UNSIGNED)
def test_unsigned_columns(
    locks: Locks, db: Database, engine: Engine, really: str, most: int, mode: str
) -> None:
    """Of which nothing but MariaDB knows; it would raise, or cut off, by the session's mode."""
    if db.kind not in FAMILY:
        return
    table = made(db, Integer, 2, really=really)
    counter = locks.counter(table.c.n, key=table.c.id, floor=None)
    with borrowed(engine, "connection") as on:
        on.execute(text(f"SET sql_mode = '{mode}'"))
        with pytest.raises(NotEnough, match="less than 0") as caught:
            counter.take(on, 1, 3, idempotency_key=KEY)
        assert caught.value.available == 2
        with pytest.raises(OverflowError):
            counter.add(on, 1, most - 1, idempotency_key=KEY)
        assert counter.add(on, 1, most - 2, idempotency_key=KEY) is True
        assert counter.value(on, 1) == most
        assert counter.take(on, 1, most) is True
        on.commit()
        assert counter.value(on, 1) == 0


def test_no_room_for_another_version(locks: Locks, db: Database, engine: Engine) -> None:
    last = 2 ** (63 if db.kind == "sqlite" else 15) - 1
    table = made(db, Integer, 10, version=last)
    plain = locks.counter(table.c.n, key=table.c.id)
    counter = locks.counter(table.c.n, key=table.c.id, version=table.c.version)
    for call in (counter.take, counter.add):
        with borrowed(engine, "connection") as on:
            with pytest.raises(OverflowError, match=r"no room for thing\.version after"):
                call(on, 1, 1, idempotency_key=KEY)
            assert plain.take(on, 1, 1, idempotency_key=KEY) is True
            with pytest.raises(OverflowError, match=r"no room for thing\.version after"):
                counter.update(on, 1, lambda value: value + 1)


def test_a_constraint_of_the_users(locks: Locks, db: Database, engine: Engine) -> None:
    """It is told as the driver tells it; where the transaction survives that, the key is free."""
    table = made(db, Integer, 10, really="INTEGER CHECK (n < 20)")
    counter = locks.counter(table.c.n, key=table.c.id)
    with borrowed(engine, "connection") as on:
        with pytest.raises(DBAPIError):
            counter.add(on, 1, 10, idempotency_key=KEY)
        if locks._database.dialect.traits.failure_aborts:
            on.rollback()
        assert counter.add(on, 1, 9, idempotency_key=KEY) is True
        assert counter.value(on, 1) == 19


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
@pytest.mark.parametrize("how", ["takes", "adds"])
@pytest.mark.parametrize("may_lock", [True, False])
def test_a_policy_keeps_the_row(
    locks: Locks, db: Database, engine: Engine, how: str, may_lock: bool
) -> None:
    """Row level security lets this role read the row, and not change it."""
    table = made(db, Integer, 10)
    counter = locks.counter(table.c.n, key=table.c.id)
    role, checked = f"clerk_{uuid4().hex}", "true" if may_lock else "false"
    with borrowed(engine, "connection") as on:
        for statement in (
            f"CREATE ROLE {role}",
            f"GRANT SELECT, UPDATE ON {table.name} TO {role}",
            f"ALTER TABLE {table.name} ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY reading ON {table.name} FOR SELECT USING (true)",
            f"CREATE POLICY changing ON {table.name} FOR UPDATE USING ({checked})",
            "CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            f"CREATE TRIGGER keeping BEFORE UPDATE ON {table.name} FOR EACH ROW "
            "EXECUTE FUNCTION kept()",
            f"SET LOCAL ROLE {role}",
        ):
            on.execute(text(statement))
        change = counter.take if how == "takes" else counter.add
        with pytest.raises(Unsupported, match=r"has room for the change, .* row level security"):
            change(on, 1, 3)
        with pytest.raises(NotEnough, match="is 10: changing it by -11 would leave less than 0"):
            counter.take(on, 1, 11)  # that is still so
        on.rollback()


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_trigger_keeps_the_row(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Integer, 10)
    counter = locks.counter(table.c.n, key=table.c.id)
    with borrowed(engine, "connection") as on:
        on.execute(
            text(
                f"CREATE TRIGGER keeping BEFORE UPDATE ON {table.name} "
                "BEGIN SELECT RAISE(IGNORE); END"
            )
        )
        with pytest.raises(Unsupported, match=r"has room for the change, .* a trigger"):
            counter.take(on, 1, 3, idempotency_key=KEY)
        assert counter.value(on, 1) == 10
        on.rollback()
