"""What the simulation's MariaDB does its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dblock.dialects import Dialect
from dblock.dialects.query import Query
from dblock.protocol import commands
from tests.conftest import find_or_skip
from tests.simulation.innodb_sessions import ROW, Server, beginning, ends_in_time, seconds
from tests.simulation.stores.innodb import InnoDBStore
from tests.simulation.stores.mariadb import MariaDBStore
from tests.simulation.stores.mariadb_statements import virtual


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InnoDBStore]:
    made = find_or_skip(lambda: MariaDBStore(tmp_path_factory.mktemp("mariadb")))
    yield made
    made.close()


@pytest.fixture
def server(store: InnoDBStore) -> Iterator[Server]:
    yield from beginning(store)


@pytest.fixture
def x(server: Server) -> Server:
    """The name x has a row, which nobody has."""
    return server.make("x")


def test_a_compound_statement_is_told_the_loops_time(server: Server) -> None:
    parts = "BEGIN NOT ATOMIC SELECT UTC_TIMESTAMP(6), SYSDATE(6); END"
    server.at(2.345678, server.session(), parts, "told")
    server.loop.run()
    assert [*map(seconds, server.rows("told")[0])] == [2.345678, 2.345678]


def test_each_part_of_a_compound_statement_has_its_own_beginning(server: Server) -> None:
    holder, waiter = server.session(), server.session()
    server.at(1, holder, "DO GET_LOCK('gate', 0)")
    parts = "BEGIN NOT ATOMIC DO GET_LOCK('gate', 4); SELECT UTC_TIMESTAMP(6); END"
    server.at(2, waiter, parts, "told")
    server.at(3, holder, "DO RELEASE_LOCK('gate')")
    server.loop.run()
    assert seconds(server.rows("told")[0][0]) == 3


def test_on_a_real_clock_it_is_the_same(store: InnoDBStore) -> None:
    with store.connect() as real, real.cursor() as cursor:
        cursor.execute("SELECT UTC_TIMESTAMP(6), SLEEP(0.01), SYSDATE(6) > UTC_TIMESTAMP(6)")
        ((_, _, later),) = cursor.fetchall()
        assert later == 1
        cursor.execute(
            "BEGIN NOT ATOMIC DECLARE began DATETIME(6) DEFAULT UTC_TIMESTAMP(6); DO SLEEP(0.01);"
            "SELECT UTC_TIMESTAMP(6) > began; END"
        )
        assert cursor.fetchall() == ((1,),)


def test_time_asked_for_in_another_way_is_refused() -> None:
    for sql in ("SELECT SYSDATE()", "BEGIN NOT ATOMIC SELECT UTC_TIMESTAMP(3); END"):
        with pytest.raises(ValueError, match="in another way"):
            virtual(sql)


def leaving(dialect: Dialect, patience: float) -> Query[Any]:
    leave = dialect.query(commands.Leave("x", "t", "y"))
    return Query(leave.sql.replace("timeout = 1", f"timeout = {patience}"), leave.params)


#: Statements that wait no longer than so many seconds.
LIMITED: dict[str, Callable[[Dialect, float], Query[Any]]] = {
    "lock_row": lambda d, patience: d.query(commands.SelectForUpdate("x", patience, borrowed=True)),
    "leave": leaving,
    "wait_in_server": lambda d, patience: d.query(commands.WaitInServer("x", patience)),
    "FOR UPDATE WAIT": lambda d, patience: Query(f"{ROW} WAIT {patience}", {}),
    "GET_LOCK": lambda d, patience: Query(
        f"SELECT GET_LOCK(%(gate)s, {patience})", {"gate": "another"}
    ),
}


@pytest.mark.parametrize("kind", LIMITED)
def test_a_wait_ends_at_its_virtual_time_as_on_a_real_clock(x: Server, kind: str) -> None:
    ends_in_time(x, lambda patience: LIMITED[kind](x.dialect, patience))


def test_a_sessions_own_limits_hold_where_a_statement_says_nothing(x: Server) -> None:
    own, lent, holder = x.session(), x.lend(), x.lend()
    x.at(1, holder, ROW)
    x.at(1, holder, "DO GET_LOCK('gate', 0)")
    x.at(2, own, "SELECT GET_LOCK('gate', 100)", "query")
    x.at(10, own, ROW, "no wait")
    x.at(20, lent, ROW, "usual")
    x.at(99, lent, "SET innodb_lock_wait_timeout = 7")
    x.at(100, lent, ROW, "set")
    x.loop.run()
    assert x.when("query") == 2 + x.dialect.timeouts.query
    assert x.rows("query") == ((None,),)
    assert (x.when("no wait"), x.error("no wait")[0]) == (10, 1205)
    assert (x.when("usual"), x.error("usual")[0]) == (70, 1205)
    assert (x.when("set"), x.error("set")[0]) == (107, 1205)
