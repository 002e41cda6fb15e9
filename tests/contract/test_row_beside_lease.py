"""A row lock in the user's transaction that meets a lease granted while its statement runs."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from dblock import Conflict, Locks
from tests.conftest import Database
from tests.support import LONG, TABLE, Threads, eventually

# The clock of one session waits, each time that it is read, until nobody has this lock.
_CLOCK = """CREATE SCHEMA IF NOT EXISTS slow;
CREATE OR REPLACE FUNCTION slow.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_lock(7);
    PERFORM pg_advisory_unlock(7);
    RETURN pg_catalog.clock_timestamp();
END $$"""
_WAITS = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")


@pytest.mark.parametrize("wait", [0, LONG])
def test_the_transaction_is_told_that_it_is_in_the_way(
    db: Database, locks: Locks, others: Locks, engine: Engine, threads: Threads, wait: float
) -> None:
    """PostgreSQL keeps a row locked that was free when the statement began and is not any more."""
    if db.kind != "postgresql":
        return  # there the name is looked at before
    with others.lease("order"):
        pass
    with engine.connect() as slow, engine.connect() as gate:
        gate.execute(text(_CLOCK))
        # One that has run out: whether it has is asked of the clock.
        gate.execute(TABLE.update().values(token="another's", expires_at=text("now()")))
        gate.commit()
        slow.execute(text("SET search_path = slow, pg_catalog, public"))
        slow.commit()
        gate.execute(text("SELECT pg_advisory_lock(7)"))
        refused = threads.attempt(locks.row("order", on=slow, wait=wait).acquire)
        eventually(lambda: gate.execute(_WAITS).scalar_one() == 1)
        lease = others.lease("order", ttl=LONG)
        assert lease.acquire()
        gate.execute(text("SELECT pg_advisory_unlock(7)"))
        gate.commit()
        with pytest.raises(Conflict, match="in the way of that lease"):
            refused.result()
        slow.rollback()
    lease.renew()
    lease.release()
