"""What the simulation's MySQL does its own way: above all packets of several statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dblock.dialects import Dialect
from dblock.dialects.packets import packet, transaction
from dblock.dialects.query import Query
from dblock.protocol import commands
from tests.conftest import find_or_skip
from tests.simulation.innodb_sessions import (
    ROW,
    Server,
    beginning,
    ends_in_time,
    running,
    seconds,
)
from tests.simulation.schedule import Schedule
from tests.simulation.stores.innodb import InnoDBStore
from tests.simulation.stores.mysql import MySQLStore
from tests.simulation.stores.mysql_statements import virtual

CHANGE = "UPDATE dblock_lock SET fence = 5 WHERE lock_name = 'x'"
READ = "SELECT fence FROM dblock_lock WHERE lock_name = 'x'"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InnoDBStore]:
    made = find_or_skip(lambda: MySQLStore(tmp_path_factory.mktemp("mysql")))
    yield made
    made.close()


@pytest.fixture
def server(store: InnoDBStore) -> Iterator[Server]:
    yield from beginning(store)


@pytest.fixture
def x(server: Server) -> Server:
    """The name x has a row, which nobody has."""
    return server.make("x")


# --- packets -----------------------------------------------------------------------------------


def test_the_statements_of_a_packet_follow_each_other_at_once(x: Server) -> None:
    x.at(1, x.session(), packet(CHANGE, READ), "told")
    x.at(2, x.session(), READ, "after")
    x.loop.run()
    assert x.when("told") == 1
    assert (x.rows("told"), x.rows("after")) == (((5,),), ((5,),))
    assert x.loop.steps == ["test#1", "server.then#1", "test#2"]


def test_others_may_come_between_them(store: InnoDBStore) -> None:
    with running(store, schedule=Schedule.parse("server.then#1+1.7")) as x:
        x.make("x")
        x.at(1, x.session(), packet(CHANGE, READ), "told")
        x.at(2, x.session(), CHANGE.replace("5", "7"), "between")
        x.loop.run()
        assert (x.when("between"), x.when("told"), x.rows("told")) == (2, 2.7, ((7,),))


def test_nobody_else_sees_a_packets_transaction_before_its_end(store: InnoDBStore) -> None:
    with running(store, schedule=Schedule.parse("server.then#3+1.7")) as x:
        x.make("x")
        seen: list[int] = []
        x.at(1, x.session(), transaction(CHANGE, READ), "told")
        for moment in (2, 3):
            x.do(moment, lambda: seen.append(x.store.rows()["x"].fence))
        x.loop.run()
        assert (x.when("told"), x.rows("told"), seen) == (2.7, ((5,),), [0, 5])


def test_none_follows_one_that_fails_and_the_transaction_stays_open(x: Server) -> None:
    holder, driver = x.lend(), x.session()
    x.at(1, holder, ROW)
    busy = transaction("UPDATE dblock_guard SET writes = 1 - writes", f"{ROW} NOWAIT", READ)
    x.at(2, driver, busy, "busy")
    x.do(3, lambda: x.answers.update(open=(3, driver.in_transaction)))
    x.at(4, driver, "ROLLBACK")
    x.at(5, driver, READ, "next")
    x.loop.run()
    assert x.error("busy")[0] == 3572
    assert x.answers["open"][1] is True
    assert (driver.in_transaction, x.rows("next")) == (False, ((0,),))


def test_each_of_them_has_its_own_beginning(server: Server) -> None:
    holder, waiter = server.session(), server.session()
    server.at(1, holder, "DO GET_LOCK('gate', 0)")
    both = packet("DO GET_LOCK('gate', 4)", "SELECT UTC_TIMESTAMP(6)")
    server.at(2, waiter, both, "told")
    server.at(3, holder, "DO RELEASE_LOCK('gate')")
    server.loop.run()
    assert seconds(server.rows("told")[0][0]) == 3


def test_on_a_real_clock_it_is_the_same(store: InnoDBStore) -> None:
    with store.connect() as real, real.cursor() as cursor:
        cursor.execute("SELECT UTC_TIMESTAMP(6), SLEEP(0.01), SYSDATE(6) > UTC_TIMESTAMP(6)")
        ((_, _, later),) = cursor.fetchall()
        assert later == 1
        cursor.execute(
            "SELECT UTC_TIMESTAMP(6) INTO @began; DO SLEEP(0.01); SELECT UTC_TIMESTAMP(6) > @began"
        )
        while cursor.nextset():
            told = cursor.fetchall()
        assert told == ((1,),)


def test_a_packet_whose_session_is_ended_is_carried_out_no_further(store: InnoDBStore) -> None:
    with running(store, schedule=Schedule.parse("server.then#2+1.7")) as x:
        x.make("x")
        ended = x.session()
        x.at(1, ended, transaction(CHANGE, READ), "told")
        x.at(2, x.session(), ended.end, "end")
        x.at(3, x.session(), READ, "after")
        x.loop.run()
        assert (x.when("told"), x.rows("end"), x.rows("after")) == (2, ((1,),), ((0,),))


def test_time_said_in_another_way_is_refused() -> None:
    for sql in ("SELECT SYSDATE()", "SELECT /*+ MAX_EXECUTION_TIME(%(ms)s) */ 1"):
        with pytest.raises(ValueError, match="in another way"):
            virtual(packet("SELECT 1", sql))


# --- waiting -----------------------------------------------------------------------------------

#: Statements that wait no longer than so many seconds.
LIMITED: dict[str, Callable[[Dialect, float], Query[Any]]] = {
    "lock_row": lambda d, patience: d.query(commands.SelectForUpdate("x", patience, borrowed=True)),
    "wait_in_server": lambda d, patience: d.query(commands.WaitInServer("x", patience)),
    "MAX_EXECUTION_TIME": lambda d, patience: Query(
        ROW.replace("SELECT", f"SELECT /*+ MAX_EXECUTION_TIME({1000 * patience}) */"), {}
    ),
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
    x.at(120, lent, "SET max_execution_time = 2500")
    x.at(121, lent, ROW, "read")
    x.at(130, lent, CHANGE, "written")
    x.loop.run()
    assert x.when("query") == 2 + x.dialect.timeouts.query
    assert (x.when("no wait"), x.error("no wait")[0]) == (11, 1205)
    assert (x.when("usual"), x.error("usual")[0]) == (70, 1205)
    assert (x.when("set"), x.error("set")[0]) == (107, 1205)
    assert (x.when("read"), x.error("read")[0]) == (123.5, 3024)
    assert (x.when("written"), x.error("written")[0]) == (137, 1205)
