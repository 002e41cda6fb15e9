"""What a role, a database or a lent engine presets: it works, or is refused plainly.

The contract runs under many such settings, see `HOSTILE_FILES` in `tests/contract/apart.py`.
"""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine

from dblock import Locks, Unavailable, Unsupported
from dblock.doctor import examine
from dblock.schema import upgrade
from tests.conftest import Database, NewDatabase, new_name
from tests.servers import PgBouncer, Server, execute
from tests.support import LONG

THERE, ELSEWHERE = "á", "錠"


def preset(pooled: Database, **settings: str) -> None:
    """Set what new sessions of a database begin with; the pooler has none before dblock comes."""
    name = pooled.url.rpartition("/")[2]
    assert isinstance(pooled.server, PgBouncer)
    for setting, value in settings.items():
        execute(pooled.server.upstream.url, f'ALTER DATABASE "{name}" SET {setting} = {value}')


def found(locks: Locks, what: str) -> str:
    return next(finding for finding in examine(locks) if finding.what == what).level.value


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding(postgresql: Server, encoding: str) -> None:
    name = new_name()
    how = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    execute(postgresql.url, f'CREATE DATABASE "{name}" {how}')
    url = postgresql.url_for(name)
    upgrade(url)
    engine = create_engine(url, connect_args={"client_encoding": "utf8"})
    with Locks(url, label="me") as locks, Locks(engine) as lent:
        for mine in (locks, lent):
            with mine.lease(THERE, ttl=LONG, label=THERE) as lease:
                assert lease.fence >= 1
                (state,) = mine.list()
                assert (state.name, state.fence) == (THERE, lease.fence)
                assert str(state.owner).endswith(THERE)
                with engine.connect() as connection, lease.guard(connection):
                    pass
        with engine.connect() as connection:
            assert locks.row("a", on=connection).acquire()
        with locks.row(THERE, wait=0):
            pass
        assert found(locks, "encoding") == "note"
        other = locks.lease(ELSEWHERE, ttl=LONG, wait=0)
        if encoding == "SQL_ASCII":
            with other:
                assert [state.name for state in locks.list()] == [ELSEWHERE]
        else:
            with pytest.raises(Unavailable, match="no equivalent in encoding"):
                other.acquire()
    engine.dispose()
    postgresql.drop_database(name)


def test_moments_and_numbers_behind_a_pooler(new_database: NewDatabase) -> None:
    """Where nothing can be set, their text is as somebody else has it."""
    pooled = new_database("pgbouncer", migrated=True)
    preset(pooled, DateStyle="'German'", extra_float_digits="-15", TimeZone="'Asia/Kathmandu'")
    with Locks(pooled.url) as locks:
        job = locks.cron("job", once_per="day")(lambda: "ran")
        assert job() == "ran"
        last = job.last_run()
        assert last is not None
        assert last.started_at is not None
        assert last.slot == f"{last.started_at:%Y-%m-%d}"
        with locks.lease("a", ttl=14.9) as lease:
            assert 10 < lease.remaining < 14.9
            remaining = locks.show("a").remaining
            assert remaining is not None
            assert 10 < remaining < 14.9
        assert found(locks, "clocks") == "ok"


def test_read_only_behind_a_pooler(new_database: NewDatabase) -> None:
    pooled = new_database("pgbouncer", migrated=True)
    preset(pooled, default_transaction_read_only="on")
    with Locks(pooled.url) as locks:
        assert found(locks, "access") == "wrong"
        with pytest.raises(Unavailable, match=r"read-only.* by default"):
            locks.lease("a").acquire(blocking=False)


def test_a_lent_engine_with_another_encoding(new_database: NewDatabase) -> None:
    """dblock changes it for its own sessions, where it has some."""
    database, pooled = (new_database(kind, migrated=True) for kind in ("postgresql", "pgbouncer"))
    for url, works in ((database.url, True), (pooled.url, False)):
        engine = create_engine(url, connect_args={"client_encoding": "LATIN1"})
        with Locks(engine) as locks:
            lease = locks.lease(ELSEWHERE, ttl=LONG, wait=0)
            if works:
                assert lease.acquire()
                assert [state.name for state in locks.list()] == [ELSEWHERE]
            else:
                with pytest.raises(Unsupported, match="client_encoding"):
                    lease.acquire()
        engine.dispose()
