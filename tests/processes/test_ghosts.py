"""A waiter that is killed or interrupted is not in the way of those behind it."""

from __future__ import annotations

import signal
import time

import pytest

from dblock import Locks, Timeouts
from tests.conftest import SERVERS, Database, NewDatabase
from tests.processes.workers import Failed, Process, want
from tests.servers import FAMILY, execute, mariadb, mysql
from tests.support import eventually

# A waiting statement of these is with the server for longer than the test takes. It is the
# yardstick: so long a ghost could have the row.
PATIENT = Timeouts(query=80, socket=90)
# The server looks after half of it whether the waiter's client is still there, or tells it then
# that its share of the waiting is over.
IMPATIENT = Timeouts(query=2, socket=10)

# The sessions that wait for a row.
WAITING = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND datname = current_database()",
    "mariadb": "SELECT id FROM information_schema.processlist "
    f"WHERE {mariadb.WAITS_FOR_A_ROW} AND db = database()",
    "mysql": "SELECT id FROM information_schema.processlist "
    f"WHERE {mysql.WAITS_FOR_A_ROW} AND db = database()",
}
ALIVE = {
    "postgresql": "SELECT 1 FROM pg_stat_activity WHERE pid = {}",
    **dict.fromkeys(FAMILY, "SELECT 1 FROM information_schema.processlist WHERE id = {}"),
}


def waiting(db: Database, count: int) -> list[int]:
    """The sessions that wait, once there are so many."""
    seen: list[int] = []

    def all_there() -> bool:
        seen[:] = [session for (session,) in execute(db.url, WAITING[db.kind])]
        return len(seen) == count

    eventually(all_there)
    return seen


@pytest.fixture(params=SERVERS)
def db(request: pytest.FixtureRequest, new_database: NewDatabase) -> Database:
    return new_database(request.param, migrated=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda how: how.name)
def test_the_next_waiter_gets_it_at_once(db: Database, how: signal.Signals) -> None:
    with (
        Locks(db.url) as locks,
        locks.row("order") as holder,
        Process(want, db.url, "order", PATIENT) as ghost,
    ):
        (session,) = waiting(db, 1)
        assert ghost.message() == "waiting"
        with Process(want, db.url, "order", PATIENT) as following:
            assert session in waiting(db, 2)
            assert following.message() == "waiting"
            ghost.send(how)
            if how is signal.SIGINT:
                with pytest.raises(Failed, match="KeyboardInterrupt"):
                    ghost.message()
            ghost.kill()
            start = time.monotonic()
            holder.release()
            assert following.message() == "locked"
            assert time.monotonic() - start < PATIENT.query / 4
            eventually(lambda: not execute(db.url, ALIVE[db.kind].format(session)))
            assert holder.acquire()  # for its section to give back


def test_its_session_ends_while_the_lock_is_held(db: Database) -> None:
    """PostgreSQL looks at the socket meanwhile; the others do not, so no wait of it is long."""
    with (
        Locks(db.url) as locks,
        locks.row("order") as holder,
        Process(want, db.url, "order", IMPATIENT) as ghost,
    ):
        assert ghost.message() == "waiting"
        (session,) = waiting(db, 1)
        ghost.kill()
        eventually(lambda: not execute(db.url, ALIVE[db.kind].format(session)))
        assert waiting(db, 0) == []
        holder.check()
