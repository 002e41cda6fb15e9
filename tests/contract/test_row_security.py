"""Row level security on dblock's tables: it is told as what it is, with what helps."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

from dblock import Locks, Unsupported
from dblock.doctor import examine
from dblock.schema import upgrade
from tests.conftest import NewDatabase, OwnServers
from tests.servers import PostgreSQL, execute
from tests.worlds.world import World


@pytest.fixture
def hidden(own_server: OwnServers, new_database: NewDatabase) -> str:
    """The URL of a role whose tables hide their rows from it."""
    db = new_database("postgresql", server=own_server(PostgreSQL))
    execute(
        db.url,
        "CREATE ROLE app LOGIN",
        "GRANT ALL ON SCHEMA public TO app",
        "GRANT EXECUTE ON FUNCTION pg_control_system() TO app",
    )
    url = make_url(db.url).set(username="app").render_as_string(hide_password=False)
    upgrade(url)
    for table in ("dblock_schema", "dblock_lock"):
        execute(url, f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        execute(url, f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    return url


def test_it_is_named_and_what_the_doctor_says_helps(hidden: str, world: World) -> None:
    with world.locks(hidden) as locks, pytest.raises(Unsupported, match="row level security hides"):
        locks.lease("report", wait=0).acquire()
    with Locks(hidden) as before:
        (found,) = [one for one in examine(before) if one.what == "row security"]
    assert found.level.value == "wrong"
    assert "dblock_lock" in found.found
    assert "dblock_schema" in found.found
    execute(hidden, *found.fix.splitlines())
    with Locks(hidden) as after:
        (found,) = [one for one in examine(after) if one.what == "row security"]
        assert found.level.value == "ok"
    with world.locks(hidden) as locks, locks.lease("report", wait=0) as lease:
        lease.renew()


def test_a_policy_for_another_role_does_not_help(hidden: str) -> None:
    execute(hidden, "CREATE POLICY others ON dblock_lock TO pg_monitor USING (true)")
    execute(hidden, "CREATE POLICY everybodys ON dblock_schema USING (true)")
    with Locks(hidden) as locks:
        (found,) = [one for one in examine(locks) if one.what == "row security"]
    assert "dblock_lock" in found.found
    assert "dblock_schema" not in found.found
