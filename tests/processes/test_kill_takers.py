"""Processes that sell from a striped counter are killed with SIGKILL: what is there is exact."""

from __future__ import annotations

from contextlib import ExitStack

from sqlalchemy import select

from dblock import Locks
from tests.conftest import Database
from tests.processes.workers import GOODS, SHELF, SOLD, Process, make_engine, sell
from tests.support import eventually

STRIPES, STOCK, SELLERS = 4, 2000, 6


def test_what_was_sold_is_what_is_missing(db: Database) -> None:
    engine = make_engine(db.url)
    GOODS.create_all(engine)

    def sold() -> int:
        with engine.connect() as connection:
            amounts = connection.execute(select(SOLD.c.amount)).scalars()
            return sum(amounts)

    with engine.begin() as connection, Locks(engine) as locks:
        connection.execute(SHELF.insert().values(id=1, stripe=0, stock=STOCK))
        locks.counter(SHELF.c.stock, key=SHELF.c.id, stripes=STRIPES).spread(connection, 1)
    with ExitStack() as stack:
        sellers = [
            stack.enter_context(Process(sell, db.url, STRIPES, seed)) for seed in range(SELLERS)
        ]
        for seller in sellers:
            assert seller.message() == "ready"
        for seller in sellers:
            seller.go_on()
        for number, victim in enumerate(sellers[1:], 1):
            enough = number * STOCK // (2 * SELLERS)
            eventually(lambda enough=enough: sold() > enough)  # type: ignore[misc]
            victim.kill()
        assert sellers[0].message() == "sold out"
    assert sold() == STOCK
    with engine.connect() as connection:
        assert list(connection.execute(select(SHELF.c.stock)).scalars()) == [0] * STRIPES
    engine.dispose()
