"""Functions and operators that another role plants where dblock looks: none of them is run.

PostgreSQL takes the function whose types fit best, in whichever schema of the search_path it is. So
a role that may create something in one of those gets what fits better than the server's own.
Nobody may run what is planted here: a statement that would do so fails before it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, make_url

from dblock import Locks
from dblock.dialects.query import Query
from dblock.doctor import examine
from dblock.doctor import postgresql as doctor
from dblock.schema import sql, upgrade
from tests.conftest import NewDatabase, OwnServers
from tests.protocol.stage import located
from tests.protocol.test_commands import COMMANDS
from tests.servers import PostgreSQL, execute

#: What fits better than the server's own may be of these types.
TYPES = (
    *("text", "varchar", "bpchar", "name", '"char"', "int2", "int4", "int8", "numeric", "float4"),
    *("float8", "bool", "timestamptz", "timestamp", "interval", "xid", "xid8", "oid", "regclass"),
    *("text[]", "varchar[]", "name[]", "int2[]"),
)
#: Of functions that have many arguments, else there would be too many of these.
FEW = ("text", "varchar", "int4", "int8", "bool", "float8", "text[]")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "&", "~~", "!~~", "!~")
#: What is sent in a transaction of a user's, by any driver.
BORROWED = {
    *("lock_row", "create", "guard", "gate", "apply", "unapply"),
    *("claim_once", "finish_once", "forget_once", "look_around"),
}
MANY = [("text",) * count for count in range(4, 7)]
COMPARE = {"=", "<>", "<", "<=", ">", ">=", "~~", "!~~", "!~"}
_CALL = re.compile(r"([a-z_][a-z0-9_]*)\(")
_SERVERS = "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"


def planted(names: set[str]) -> Iterator[str]:
    """Return the statements that plant them all."""
    body = "LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''planted''; END'"
    for number, (left, right) in enumerate(product(TYPES, TYPES)):
        for result in {"bool", left}:
            made = f"planted_{number}_{result == 'bool'}".lower()
            yield f"CREATE FUNCTION {made}({left}, {right}) RETURNS {result} {body}"
            for operator in OPERATORS:
                if (result == "bool") == (operator in COMPARE):
                    yield (
                        f"CREATE OPERATOR {operator} "
                        f"(FUNCTION = {made}, LEFTARG = {left}, RIGHTARG = {right})"
                    )
    several = {("text[]",): "VARIADIC text[]", ("text", "text[]"): "text, VARIADIC text[]"}
    for types in (*product(TYPES), *product(FEW, FEW), *product(FEW, FEW, FEW), *MANY):
        several.setdefault(types, ", ".join(types))
    for name, arguments in product(sorted(names), several.values()):
        yield f'CREATE FUNCTION "{name}"({arguments}) RETURNS text {body}'


def queries() -> Iterator[Query[Any]]:
    """Return all statements of dblock's, of its own sessions and of users' transactions."""
    dialect = located("postgresql")
    for command in COMMANDS:
        if type(command) not in dialect.unsupported:
            yield dialect.query(command)


@pytest.fixture
def there(own_server: OwnServers, new_database: NewDatabase) -> str:
    """The URL of a database of a role's, in which another role has planted all this."""
    db = new_database("postgresql", server=own_server(PostgreSQL))
    at = make_url(db.url)
    execute(
        db.url,
        "CREATE ROLE app LOGIN",
        "CREATE ROLE other LOGIN",
        "GRANT ALL ON SCHEMA public TO app, other",
        "GRANT pg_read_all_stats TO app",
        "GRANT EXECUTE ON FUNCTION pg_control_system() TO app",
    )
    url = at.set(username="app").render_as_string(hide_password=False)
    upgrade(url)
    execute(url, "CREATE TABLE fences (name text PRIMARY KEY, fence bigint NOT NULL)")
    said = (
        sql(url, functions=True)
        + Path(doctor.__file__).read_text()
        + "".join(one.sql for one in queries())
    )
    servers = {name for (name,) in execute(url, _SERVERS)}
    everything = list(planted(servers & set(_CALL.findall(said))))
    with connected(at, "other") as connection:
        connection.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
        for first in range(0, len(everything), 500):
            connection.execute(";".join(everything[first : first + 500]))
    return url


def connected(at: URL, role: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=at.host, port=at.port, user=role, dbname=at.database, autocommit=True
    )


@pytest.mark.parametrize("cursor", [psycopg.Cursor, psycopg.ClientCursor])
def test_no_statement_runs_what_another_role_has_planted(
    there: str, cursor: type[psycopg.Cursor[Any]]
) -> None:
    """Each is planned and made ready, as psycopg sends it, or with its values written into it."""
    refused = {}
    with connected(make_url(there), "app") as connection:
        for query in queries():
            if not query.sql.startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")):
                continue
            if cursor is psycopg.ClientCursor and query.kind not in BORROWED:
                continue
            try:
                cursor(connection).execute(f"EXPLAIN {query.sql}", dict(query.params))
            except psycopg.Error as error:
                refused[query.kind] = str(error)
    assert refused == {}


def test_what_else_is_done_runs_none_either(there: str) -> None:
    """The doctor, and whole locks."""
    with Locks(there) as locks:
        found = {one.what: one for one in examine(locks)}
        assert [one for one in found.values() if one.found.startswith("not seen")] == []
        assert "other may create functions in public" in found["schemas"].found
        with locks.lease("report", wait=0) as lease, locks.row("order", wait=0):
            lease.renew()
        locks.pause(0)
        assert locks.list() == []
        locks.prune(0)
        locks.prune_names(60)
        locks.prune_names(10_000)


def test_the_sql_functions_are_made_of_none_and_run_none(there: str) -> None:
    with Locks(there) as locks, connected(make_url(there), "app") as connection:
        dialect = locks._database.dialect
        made, dropped = (
            dialect.create_functions(),
            (*dialect.drop_functions(), *dialect.drop_gate()),
        )
        for statement in (*made, *made):
            connection.execute(statement)
        ask = "SELECT fence FROM dblock_acquire('report', repeat('a', 32), 'psql', 30)"
        ((fence,),) = connection.execute(ask)
        assert not locks.lease("report", wait=0).acquire()
        connection.execute("SELECT dblock_renew('report', repeat('a', 32), 30)")
        connection.execute("SELECT dblock_show('report')")
        connection.execute("SELECT dblock_gate('report', %s)", [fence])
        connection.execute("SELECT dblock_release('report', repeat('a', 32))")
        for statement in dropped:
            connection.execute(statement)
        question = dialect.find_functions()
        assert question
        assert connection.execute(question).fetchall() == []
