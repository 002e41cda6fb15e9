"""The SQL functions are made with the tables, brought up to date with them, and dropped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import MetaData, create_engine, make_url

from dblock import Locks, Unsupported, fencing
from dblock.doctor import Level, examine
from dblock.errors import StaleFence
from dblock.protocol.schema_version import SCHEMA_VERSION
from dblock.schema import downgrade, leave_ours, sql, tables, upgrade
from tests.conftest import NewDatabase
from tests.servers import execute
from tests.servers.postgresql import find_postgresql
from tests.sql_functions.caller import Caller, conninfo, token

NAMES = tuple(f"dblock_{name}" for name in ("acquire", "gate", "release", "renew", "show"))
HEAD = f"dblock_{SCHEMA_VERSION:04}"
MADE = """SELECT nspname || '.' || proname FROM pg_proc AS p
    JOIN pg_namespace AS n ON n.oid = pronamespace
    WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' AND proname !~ '_arrived$'
    ORDER BY proname"""
ALL = [(f"public.dblock_{name}",) for name in ("acquire", "gate", "release", "renew", "show")]
ALL += [("public.dblock_trust",)]
FENCES = "SELECT to_regclass('dblock_fence') IS NOT NULL"


@pytest.fixture
def empty(new_database: NewDatabase) -> str:
    return new_database("postgresql").url


@pytest.fixture
def role(empty: str) -> Iterator[str]:
    """A role of the server that may connect, and no more."""
    name = f"role_of_{make_url(empty).database}"
    execute(empty, f"CREATE ROLE {name} LOGIN")
    yield name
    execute(empty, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def of_role(url: str, role: str) -> str:
    return make_url(url).set(username=role).render_as_string(hide_password=False)


def works(url: str, functions: str = "dblock_{}") -> None:
    with Caller(url, functions) as caller:
        mine = token()
        assert caller.acquire("it works", mine).fence is not None
        assert caller.renew("it works", mine)[0] is not None
        assert caller.show("it works").holder == "a caller"
        assert caller.release("it works", mine)


def test_only_where_they_are_asked_for(empty: str) -> None:
    assert upgrade(empty).functions == ()
    assert execute(empty, MADE) == []
    assert execute(empty, FENCES) == [(False,)]
    assert examined(empty) is None
    done = upgrade(empty, functions=True)
    assert done.functions == NAMES
    assert str(done).endswith(f"with the functions {', '.join(NAMES)}")
    assert execute(empty, MADE) == ALL
    works(empty)


def test_every_upgrade_brings_them_up_to_date_and_keeps_their_rights(empty: str, role: str) -> None:
    upgrade(empty, functions=True)
    signature = "dblock_release(name text, token text, OUT released boolean)"
    execute(
        empty,
        f"CREATE OR REPLACE FUNCTION {signature} LANGUAGE sql AS 'SELECT true'",
        "COMMENT ON FUNCTION dblock_release(text, text) IS 'an older one (dblock 01234567)'",
        f"GRANT EXECUTE ON FUNCTION dblock_release(text, text) TO {role}",
        "DROP FUNCTION dblock_gate",
    )
    with Caller(of_role(empty, role)) as caller:
        assert caller.release("never", token())  # as the older one says
        assert examined(empty) == (Level.WRONG, "another version of dblock made dblock_release")
        assert upgrade(empty).functions == NAMES
        assert not caller.release("never", token())
    assert execute(empty, MADE) == ALL
    assert examined(empty) == (Level.OK, "they are up to date")
    works(empty)


def examined(url: str) -> tuple[Level, str] | None:
    """What the doctor says of the functions."""
    with Locks(url) as locks:
        found = [(one.level, one.found) for one in examine(locks) if one.what == "functions"]
    return found[0] if found else None


def test_they_follow_an_upgrade_of_older_tables(empty: str) -> None:
    upgrade(empty, functions=True)
    execute(empty, "DROP FUNCTION dblock_show")
    execute(empty, "UPDATE dblock_schema SET revision = 12")
    execute(empty, "UPDATE dblock_version SET version_num = 'dblock_0012'")
    done = upgrade(empty)
    assert (done.before, done.after, done.functions) == ("dblock_0012", HEAD, NAMES)
    works(empty)


def test_they_are_dropped_where_that_is_asked_for(empty: str) -> None:
    """The fences that have passed their gate stay, and the locks."""
    upgrade(empty, functions=True)
    with Caller(empty) as caller:
        caller.gate("report", 7)
        caller.acquire("report", token())
    assert upgrade(empty, functions=False).functions == ()
    assert execute(empty, MADE) == []
    upgrade(empty, functions=False)
    upgrade(empty, functions=True)
    with Caller(empty) as caller:
        assert caller.show("report").fence == 1
        with pytest.raises(psycopg.DatabaseError, match="stale"):
            caller.gate("report", 6)


@pytest.mark.parametrize("revision", ["base", "dblock_0012"])
def test_a_downgrade_drops_them(empty: str, revision: str) -> None:
    upgrade(empty, functions=True)
    downgrade(empty, revision=revision)
    assert execute(empty, MADE) == []
    assert execute(empty, FENCES) == [(revision != "base",)]
    downgrade(empty, revision="base")
    assert upgrade(empty).functions == ()


def test_a_downgrade_keeps_the_table_of_a_gate_that_they_did_not_make(empty: str) -> None:
    engine = create_engine(empty)
    metadata = MetaData()
    fencing.table(metadata)
    metadata.create_all(engine)
    engine.dispose()
    upgrade(empty, functions=True)
    downgrade(empty)
    assert execute(empty, FENCES) == [(True,)]


def test_the_gates_table_is_that_of_dblock(empty: str) -> None:
    """The functions' DDL and `fencing.table` each spell it."""
    upgrade(empty, functions=True)
    execute(empty, "CREATE SCHEMA other")
    engine = create_engine(empty)
    fencing.table(MetaData(), schema="other").create(engine)
    engine.dispose()
    columns = """SELECT column_name, data_type, is_nullable, collation_name, column_default
        FROM information_schema.columns WHERE table_schema = '{}' AND table_name = 'dblock_fence'
        ORDER BY ordinal_position"""
    constraints = """SELECT conname, contype::text, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = '{}.dblock_fence'::regclass ORDER BY conname"""
    for looked in (columns, constraints):
        theirs = execute(empty, looked.format("other"))
        assert theirs
        assert execute(empty, looked.format("public")) == theirs


def test_the_gate_is_that_of_dblock(empty: str) -> None:
    """In the same database both let the same fences pass."""
    upgrade(empty, functions=True)
    engine = create_engine(empty)
    with Caller(empty) as caller:
        assert caller.gate("report", 7) == 7
        assert caller.gate("report", 7) == 7
        with engine.begin() as connection:
            fencing.gate(connection, "report", 8)
        with pytest.raises(psycopg.DatabaseError, match="fence 7 of 'report' is stale") as caught:
            caller.gate("report", 7)
        assert caught.value.sqlstate == "LK001"
        caller.gate("report", 10)
        with pytest.raises(StaleFence), engine.begin() as connection:
            fencing.gate(connection, "report", 9)
        caller.run("BEGIN")
        caller.gate("report", 11)
        caller.run("ROLLBACK")
        assert caller.gate("report", 10) == 10
    engine.dispose()


def test_a_role_without_rights_on_the_tables(empty: str, role: str) -> None:
    upgrade(empty, functions=True)
    url = of_role(empty, role)
    with Caller(url) as caller:
        for call in (
            lambda: caller.acquire("report", token()),
            lambda: caller.renew("report", token()),
            lambda: caller.release("report", token()),
            lambda: caller.show("report"),
            lambda: caller.gate("report", 1),
            lambda: caller.run("SELECT * FROM dblock_trust(1)"),
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="function"):
                call()
    execute(empty, *grants(role))
    works(url)
    with Caller(url) as caller:
        assert caller.gate("report", 1) == 1
        for table in ("lock", "witness", "epoch", "fence"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=table):
                caller.run(f"SELECT * FROM dblock_{table}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="dblock_trust"):
            caller.run("SELECT * FROM dblock_trust(1)")


def grants(role: str) -> tuple[str, ...]:
    takes = {
        "acquire": "text, text, text, double precision",
        "renew": "text, text, double precision",
        "release": "text, text",
        "show": "text",
        "gate": "text, bigint",
    }
    return tuple(
        f"GRANT EXECUTE ON FUNCTION dblock_{name}({kinds}) TO {role}"
        for name, kinds in takes.items()
    )


def test_default_privileges_open_them_to_nobody_else(empty: str, role: str) -> None:
    """An operator may have given all new functions to a role, and so to every role beside it."""
    execute(empty, f"ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {role}")
    upgrade(empty, functions=True)
    public = """SELECT count(*) FROM pg_proc, LATERAL aclexplode(proacl) AS acl
        WHERE proname IN ('dblock_acquire', 'dblock_gate') AND acl.grantee = 0"""
    assert execute(empty, public) == [(0,)]


def test_what_the_caller_puts_first_on_its_search_path_is_not_called(empty: str, role: str) -> None:
    upgrade(empty, functions=True)
    execute(empty, *grants(role), f"CREATE SCHEMA mine AUTHORIZATION {role}")
    with Caller(of_role(empty, role)) as caller:
        caller.run("SET search_path = mine, pg_catalog, public")
        caller.run("CREATE TABLE mine.dblock_lock (lock_name text)")
        caller.run("CREATE TEMPORARY TABLE dblock_lock (lock_name text)")
        caller.run(
            "CREATE FUNCTION mine.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'called with the rights of %', current_user; END $$"
        )
        with pytest.raises(psycopg.errors.RaiseException, match="called with"):
            caller.run("SELECT clock_timestamp()")
        mine = token()
        assert caller.acquire("report", mine).fence == 1
        assert caller.renew("report", mine)[0] == 1
        assert caller.release("report", mine)


def test_in_a_schema_and_with_a_prefix(empty: str) -> None:
    """Several sets of tables in one database are different locks."""
    execute(empty, 'CREATE SCHEMA "Team_A"')
    places: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "dblock_{}"),
        ({"prefix": "App_"}, '"App_{}"'),
        ({"schema": "Team_A"}, '"Team_A".dblock_{}'),
        ({"schema": "Team_A", "prefix": "App_"}, '"Team_A"."App_{}"'),
    )
    for place, functions in places:
        upgrade(empty, functions=True, **place)
        with Caller(empty, functions) as caller, Locks(empty, **place) as locks:
            assert caller.acquire("report", token()).fence == 1
            assert not locks.lease("report", wait=0).acquire()
            assert caller.gate("report", 1) == 1
    upgrade(empty, functions=False, **places[0][0])
    assert upgrade(empty, **places[0][0]).functions == ()
    downgrade(empty, **places[2][0])
    for place, functions in (places[1], places[3]):
        assert upgrade(empty, **place).functions == tuple(
            name.replace("dblock_", "App_") for name in NAMES
        )
        works(empty, functions)


@pytest.mark.parametrize("name", ["tenant", 'we\'ird "x" $', "Tenant"])
def test_in_the_schema_of_the_search_path(empty: str, name: str) -> None:
    """The tables are found by the path, and named by their schema in the functions."""
    quoted = '"' + name.replace('"', '""') + '"'
    role = f"owner_{make_url(empty).database}"
    execute(
        empty,
        f"CREATE SCHEMA {quoted}",
        f"CREATE ROLE {role} LOGIN SUPERUSER",
        f"ALTER ROLE {role} SET search_path = {quoted}",
    )
    try:
        url = of_role(empty, role)
        assert upgrade(url, functions=True).functions == NAMES
        works(url)
        assert upgrade(url).functions == NAMES
        with Caller(empty) as elsewhere:
            mine = token()
            got = elsewhere.run(
                f"SELECT fence FROM {quoted}.dblock_acquire('report', '{mine}', 'a', 30)"
            )
            assert got == [(1,)]
        downgrade(url)
        assert execute(empty, MADE) == []
    finally:
        execute(empty, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def psql(url: str, script: str, tmp_path: Path) -> None:
    programs = find_postgresql()
    assert programs is not None
    file = tmp_path / "dblock.sql"
    file.write_text(script)
    command = ("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(file), conninfo(url))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("schema", [None, "locking"])
def test_as_printed_sql(empty: str, schema: str | None, tmp_path: Path) -> None:
    execute(empty, "CREATE SCHEMA locking")
    psql(empty, sql("postgresql+psycopg://db/app", schema=schema, functions=True), tmp_path)
    works(empty, f"{schema}.dblock_{{}}" if schema else "dblock_{}")
    printed = sql("postgresql+psycopg://db/app", schema=schema, functions=False)
    *_, last = printed.split(");\n\n")  # behind the tables, which are there now
    psql(empty, f"BEGIN;\n{last}", tmp_path)
    assert "DROP FUNCTION" in last
    assert execute(empty, MADE) == []


@pytest.mark.parametrize("kind", ["mariadb", "sqlite"])
def test_another_database_has_none(kind: str, tmp_path: Path) -> None:
    """It is refused before any I/O; to drop what cannot be there is no error."""
    url = {"mariadb": "mariadb+pymysql://nowhere/app", "sqlite": f"sqlite:///{tmp_path}/no/file"}
    for call in (upgrade, sql):
        with pytest.raises(Unsupported, match="they work on postgresql"):
            call(url[kind], functions=True)
    file = f"sqlite:///{tmp_path}/file"
    assert upgrade(file, functions=False).functions == ()


def test_wrong_arguments() -> None:
    nowhere = "postgresql+psycopg://nowhere/app"
    for wrong in ("yes", 1, ()):
        with pytest.raises(TypeError, match="functions is True or False"):
            upgrade(nowhere, functions=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave out revision='dblock_0012'"):
        upgrade(nowhere, functions=True, revision="dblock_0012")


def test_beside_tables_that_other_migrations_made(empty: str) -> None:
    engine = create_engine(empty)
    metadata = MetaData()
    made = tables(metadata)
    metadata.create_all(engine)
    with engine.begin() as connection:
        version = made["schema"].insert().values(version=1, revision=SCHEMA_VERSION)
        connection.execute(version)
    engine.dispose()
    assert upgrade(empty, functions=True).functions == NAMES
    works(empty)
    assert upgrade(empty).functions == NAMES
    assert upgrade(empty, functions=False).functions == ()


def test_autogenerate_leaves_the_table_of_the_gate() -> None:
    include = leave_ours(prefix="app_")
    assert not include("app_fence", "table", {"schema_name": None})
    assert leave_ours()("fence", "table", {"schema_name": None})
    assert leave_ours(known=("dblock_fence",))("dblock_fence", "table", {"schema_name": None})
