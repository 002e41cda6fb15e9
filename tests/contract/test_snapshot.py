"""What a transaction of the user's has read before: on MariaDB it stays, and is not believed.

From 11.6.2 on the server takes a whole transaction back where a statement would lock a row that is
newer than the transaction's first read (``innodb_snapshot_isolation``). No statement of dblock's
lets it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import MetaData, event, text
from sqlalchemy.engine import Engine

from dblock import Counter, Locks, NotEnough, StaleFence, fencing
from tests.conftest import Database
from tests.contract.shop import Shelf, left
from tests.contract.test_fencing import gate
from tests.contract.test_once import RESULT, call
from tests.servers import FAMILY
from tests.support import LONG, MOMENT, Borrowed, Facts, borrowed, new_session
from tests.worlds.world import World

pytestmark = pytest.mark.parametrize("db", FAMILY, indirect=True)

ITS_OWN = "SHOW SESSION VARIABLES LIKE 'innodb_snapshot_isolation'"


@pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
def strict(db: Database, world: World, request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = world.engine(db.users_url, isolation_level=request.param)
    yield made
    made.dispose()


@pytest.fixture
def on(strict: Engine, facts: Facts) -> Iterator[Borrowed]:
    """A transaction that has read and written something, and what it has written is there later."""
    with borrowed(strict, "connection") as made:
        insists = made.execute(text(ITS_OWN)).all()
        made.rollback()
        facts.add(made, 1)
        made.execute(text("SELECT n FROM facts WHERE id = 1"))  # under SERIALIZABLE a read locks
        yield made
        assert made.execute(text(ITS_OWN)).all() == insists
        made.commit()
    assert facts.ids() == {0, 1}


@pytest.mark.parametrize("wait", [0, MOMENT, None])
def test_a_row_lock(locks: Locks, others: Locks, on: Borrowed, wait: float | None) -> None:
    with others.lease("order", ttl=LONG):
        pass
    assert locks.row("order", wait=wait, on=on).acquire()
    assert not others.lease("order", wait=0).acquire()


def test_a_guard(locks: Locks, on: Borrowed) -> None:
    with locks.lease("order", ttl=LONG) as lease, lease.guard(on):
        pass


def test_a_counter(stock: Counter, engine: Engine, on: Borrowed) -> None:
    with new_session(engine) as other:
        stock.take(other, 1, 4)
        other.commit()
    assert stock.take(on, 1, 5)
    assert stock.add(on, 1, 2)


def test_a_counter_that_has_not_enough_any_more(
    stock: Counter, engine: Engine, on: Borrowed
) -> None:
    with new_session(engine) as other:
        stock.take(other, 1, 8)
        other.commit()
    with pytest.raises(NotEnough) as caught:
        stock.take(on, 1, 5)
    assert caught.value.available == 2


def test_a_counter_that_others_have_set(stock: Counter, engine: Engine, on: Borrowed) -> None:
    with new_session(engine) as other:
        stock.take(other, 1, 4)
        other.commit()
    assert not stock.compare_and_update(on, 1, seen=10, new=0)
    assert stock.update(on, 1, lambda value: value - 1) == 5


def test_a_counter_whose_statements_are_watched(
    stock: Counter, strict: Engine, engine: Engine, on: Borrowed
) -> None:
    """They go through SQLAlchemy then."""
    target: Any = getattr(strict, "target", strict)
    event.listen(getattr(target, "sync_engine", target), "before_cursor_execute", _see)
    test_a_counter_that_others_have_set(stock, engine, on)


def _see(*args: object) -> None: ...


def test_a_striped_counter(locks: Locks, stock: Counter, engine: Engine, on: Borrowed) -> None:
    shelves = locks.counter(Shelf.stock, key=Shelf.product, stripes=2, floor=0)
    with new_session(engine) as other:
        other.add(Shelf(product=1, stripe=0, stock=10))
        other.commit()
        shelves.spread(other, 1)
        other.commit()
    assert shelves.take(on, 1, 7)
    on.commit()
    assert left(engine, shelves) == 3


def test_a_key_that_was_used_since(stock: Counter, engine: Engine, on: Borrowed) -> None:
    with new_session(engine) as other:
        assert stock.take(other, 1, idempotency_key="order-42")
        other.commit()
    assert not stock.take(on, 1, idempotency_key="order-42")


def test_a_call_that_was_made_since(
    locks: Locks, engine: Engine, facts: Facts, on: Borrowed
) -> None:
    with borrowed(engine, "connection") as other:
        assert call(locks, other, "order-42") == (RESULT, False)
        other.commit()
    assert call(locks, on, "order-42") == (RESULT, True)


@pytest.fixture
def gated(engine: Engine) -> None:
    """There is a gate's table, from before the transaction."""
    fencing.table(MetaData()).metadata.create_all(engine)


def test_a_gate(gated: None, engine: Engine, on: Borrowed) -> None:
    with borrowed(engine, "connection") as other:
        gate(other, "report", 7)
        other.commit()
    with pytest.raises(StaleFence):
        gate(on, "report", 6)
    gate(on, "report", 8)
