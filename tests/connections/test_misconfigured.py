"""A connection that fails until somebody changes something is told apart from a database that is
away, and nothing of a password is ever shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from dblock import (
    DBLockError,
    Locks,
    Misconfigured,
    SchemaMissing,
    Timeouts,
    Unavailable,
    Unsupported,
)
from dblock.cli import exits
from dblock.schema import upgrade
from tests.cli.conftest import Here as Here
from tests.cli.conftest import here as here
from tests.conftest import NewDatabase, find_or_skip, new_name
from tests.servers import FAMILY, PostgreSQL, execute
from tests.worlds.portal import WORLDS
from tests.worlds.world import World

SECRET = "Swordfish-1"
# A wrong password may be right in a moment, so dblock tries for as long.
IMPATIENT = Timeouts(connect=5, query=0.5, socket=1)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """The URL of a PostgreSQL server that asks roles for a password, for a role of its own."""
    with find_or_skip(lambda: PostgreSQL()) as server:
        hba = server.data / "pg_hba.conf"
        trusting = hba.read_text()
        hba.write_text(
            "host all barred all reject\n"
            f"host all app,nologin,full,nobody_here all scram-sha-256\n{trusting}"
        )
        execute(
            server.url,
            "SELECT pg_reload_conf()",
            f"CREATE ROLE app LOGIN PASSWORD '{SECRET}'",
            f"CREATE ROLE full LOGIN PASSWORD '{SECRET}' CONNECTION LIMIT 0",
            f"CREATE ROLE nologin PASSWORD '{SECRET}'",
            "CREATE ROLE barred LOGIN",
            "CREATE DATABASE closed",
            "REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
        )
        url = make_url(server.url).set(username="app", password=SECRET)
        yield url.render_as_string(hide_password=False)


def told(world: World, url: str) -> DBLockError:
    with world.locks(url, timeouts=IMPATIENT) as locks, pytest.raises(DBLockError) as caught:
        locks.lease("a", wait=0).acquire()
    assert SECRET not in str(caught.value)
    return caught.value


def changed(url: str, query: str = "", **parts: Any) -> str:
    made = make_url(url).set(**parts)
    return made.render_as_string(hide_password=False) + query


OF_POSTGRESQL = [
    ({"password": f"{SECRET}0"}, ""),
    ({"username": "nobody_here"}, ""),
    ({"username": "barred"}, ""),
    ({"username": "nologin"}, ""),
    ({"database": "no_such"}, ""),
    ({"database": "closed"}, ""),
    ({}, "?sslmode=require"),
    ({}, "?sslmode=misspelt"),
    ({}, "?frobnicate=1"),
    ({}, "?connect_timeout=abc"),
    ({}, "?options=-c%20frobnicate%3D1"),
]


@pytest.mark.parametrize(("parts", "query"), OF_POSTGRESQL, ids=str)
def test_what_postgresql_refuses_until_somebody_changes_it(
    world: World, strict: str, parts: dict[str, Any], query: str
) -> None:
    assert type(told(world, changed(strict, query, **parts))) is Misconfigured


def test_what_is_away_on_postgresql(world: World, strict: str) -> None:
    """A role that has no connection left, and a port where nobody listens."""
    away: list[dict[str, Any]] = [{"username": "full"}, {"port": 1}]
    for parts in away:
        error = told(world, changed(strict, **parts))
        assert isinstance(error, Unavailable)
        assert not isinstance(error, Misconfigured)
    assert isinstance(told(world, strict), SchemaMissing)


@pytest.mark.parametrize("kind", FAMILY)
def test_what_mariadb_refuses_until_somebody_changes_it(
    world: World, new_database: NewDatabase, kind: str
) -> None:
    db = new_database(kind)
    role = new_name()[:30]
    locked = new_name()[:30]
    execute(
        db.url,
        f"CREATE USER {role} IDENTIFIED BY '{SECRET}'",
        f"GRANT ALL ON *.* TO {role}",
        f"CREATE USER {locked} IDENTIFIED BY '{SECRET}' ACCOUNT LOCK",
    )
    url = changed(db.url, username=role, password=SECRET)
    try:
        for parts in (
            {"password": f"{SECRET}0"},
            {"username": "nobody_here"},
            {"username": locked},
            {"database": "no_such"},
        ):
            assert type(told(world, changed(url, **parts))) is Misconfigured, parts
        assert isinstance(told(world, changed(url, "?frobnicate=1")), Unsupported)
        if type(world) is World:  # asyncmy makes a broken connection of it
            assert isinstance(told(world, changed(url, "?charset=frobnicate")), Unsupported)
        away = told(world, changed(url, port=1))
        assert isinstance(away, Unavailable)
        assert not isinstance(away, Misconfigured)
    finally:
        execute(db.url, f"DROP USER {role}, {locked}")


def test_what_sqlite_refuses_until_somebody_changes_it(world: World, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("This is not a database, and will not become one." * 100)
    for file in ("none/locks.db", "other", "."):
        assert type(told(world, f"sqlite:///{tmp_path}/{file}")) is Misconfigured


def test_an_upgrade_tells_it_too(strict: str) -> None:
    for parts in ({"password": f"{SECRET}0"}, {"database": "no_such"}):
        with pytest.raises(Misconfigured):
            upgrade(changed(strict, **parts))


@pytest.mark.parametrize("command", [["list"], ["upgrade"], ["run", "a", "-n", "--", "true"]])
def test_what_never_heals_is_not_told_as_a_database_that_is_away(
    here: Here, strict: str, tmp_path: Path, command: list[str]
) -> None:
    """A supervisor may try again after 69, and need not after 78."""

    def code(url: str) -> int:
        ended, out, err = here(command[0], "--url", url, *command[1:])
        assert SECRET not in out + err
        assert err.splitlines()[-1].startswith("dblock: ")
        return ended

    never = [
        changed(strict, password=f"{SECRET}0"),
        changed(strict, database="no_such"),
        changed(strict, "?frobnicate=1"),
        f"sqlite:///{tmp_path}/none/locks.db",
        "oracle://db",
        "postgresql+pg8000://db/app",
    ]
    assert [code(url) for url in never] == [exits.CONFIG] * len(never)
    assert code(changed(strict, port=1)) == exits.UNAVAILABLE


@pytest.mark.parametrize(
    "url",
    [
        f"postgres://app:p@{SECRET}@host/db",
        f"postgres://app:p@{SECRET}:w@host:5432/db",
        f"mysql://app:p@s/{SECRET}@host/db",
        f"mysql+pymysql://app:p@s?{SECRET}@host/db",
        f"postgres://app:p@@{SECRET}@host/db",
    ],
)
def test_an_at_in_a_password_is_told_without_the_password(here: Here, url: str) -> None:
    """What follows it would count as the host, and be shown as such."""
    with pytest.raises(ValueError, match="write %40 for an @ in the password") as refused:
        Locks(url)
    assert SECRET not in str(refused.value)
    for command in (["list"], ["upgrade"], ["run", "a", "--", "true"]):
        code, _, err = here(command[0], "--url", url, *command[1:])
        assert (code, SECRET in err) == (64, False)


def test_an_at_elsewhere_is_no_matter() -> None:
    Locks("postgresql://app@tenant:secret@host/db")  # as Azure has users
    Locks("postgresql://app@host/a@b")
    Locks("sqlite:////var/lib/a:b@c/locks.db")
    Locks("postgresql://app:p%40s@host/db")
