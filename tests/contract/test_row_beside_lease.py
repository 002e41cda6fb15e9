"""A row lock in the user's transaction that meets a lease granted while its statement runs."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from dblock import Locks
from tests.conftest import Database
from tests.support import LONG, MOMENT, SECONDS, TABLE, Threads, eventually

# The clock of one session waits, each time that it is read, until nobody has this lock.
_CLOCK = """CREATE SCHEMA IF NOT EXISTS slow;
CREATE OR REPLACE FUNCTION slow.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT pg_try_advisory_lock(7) LOOP
        PERFORM pg_sleep(0.005);  -- which no lock timeout ends
    END LOOP;
    PERFORM pg_advisory_unlock(7);
    RETURN pg_catalog.clock_timestamp();
END $$"""
_WAITS = text(
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event = 'PgSleep'"
)


@pytest.mark.parametrize("wait", [0, MOMENT])
def test_nothing_is_in_the_leases_way(
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
        tried = threads.start(locks.row("order", on=slow, wait=LONG).acquire, timeout=wait)
        eventually(lambda: gate.execute(_WAITS).scalar_one() > 0)
        lease = others.lease("order", ttl=LONG)
        assert lease.acquire()
        gate.execute(text("SELECT pg_advisory_unlock(7)"))
        gate.commit()
        assert not tried.result(SECONDS)
        lease.renew()
        assert slow.execute(text("SELECT 1")).scalar_one() == 1
        lease.release()
