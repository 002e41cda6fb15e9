"""The simulation's MariaDB and MySQL are the real ones, but for their clocks and patience."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dblock.dialects.query import Query
from dblock.protocol import commands
from tests.conftest import find_or_skip
from tests.simulation.errors import Lost
from tests.simulation.innodb_sessions import (
    ROW,
    SCHEDULES,
    Server,
    beginning,
    row_locks,
    running,
    seconds,
    told,
)
from tests.simulation.run import Scenario, run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.store import RESTART
from tests.simulation.stores.innodb import InnoDBStore
from tests.simulation.stores.mariadb import MariaDBStore
from tests.simulation.stores.mysql import MySQLStore


@pytest.fixture(scope="module", params=[MariaDBStore, MySQLStore], ids=lambda kind: kind.name)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InnoDBStore]:
    kind: type[InnoDBStore] = request.param
    made = find_or_skip(lambda: kind(tmp_path_factory.mktemp(kind.name)))
    yield made
    made.close()


@pytest.fixture
def server(store: InnoDBStore) -> Iterator[Server]:
    yield from beginning(store)


@pytest.fixture
def x(server: Server) -> Server:
    """The name x has a row, which nobody has."""
    return server.make("x")


# --- time --------------------------------------------------------------------------------------

TIMES = "SELECT UTC_TIMESTAMP(6), SYSDATE(6)"


def test_the_server_tells_the_loops_time(server: Server) -> None:
    own, lent = server.session(), server.lend()
    server.at(1.000001, own, TIMES, "own")
    server.at(3.999999, lent, "SELECT NOW(6), CURRENT_TIMESTAMP(6)", "lent")
    server.loop.run()
    for name, moment in (("own", 1.000001), ("lent", 3.999999)):
        assert [*map(seconds, server.rows(name)[0])] == [moment, moment]


def test_the_databases_clock_has_a_rate(store: InnoDBStore) -> None:
    with running(store, rate=1.1) as server:
        server.at(10, server.session(), TIMES, "told")
        server.loop.run()
        assert seconds(server.rows("told")[0][1]) == 11


def test_a_statement_that_waited_knows_when_it_began_and_what_time_it_is(x: Server) -> None:
    """As on a real clock: UTC_TIMESTAMP is its beginning, SYSDATE the moment it is evaluated."""
    holder, waiter = x.lend(), x.lend()
    x.at(1, holder, ROW)
    waits = "SELECT UTC_TIMESTAMP(6), SYSDATE(6) FROM dblock_lock WHERE lock_name = 'x' FOR UPDATE"
    x.at(2, waiter, waits, "plain")
    x.at(3.5, holder, "COMMIT")
    x.loop.run()
    assert x.when("plain") == 3.5
    assert [*map(seconds, x.rows("plain")[0])] == [2, 3.5]


# --- waiting -----------------------------------------------------------------------------------


def test_a_statement_waits_for_a_row_until_its_holder_lets_it_go(x: Server) -> None:
    a, b, c = x.lend(), x.lend(), x.lend()
    x.at(1, a, ROW, "a")
    x.at(2, b, ROW, "b")
    x.at(3, c, ROW, "c")
    x.at(4, a, "COMMIT")
    x.at(5, b, "ROLLBACK")
    x.loop.run()
    assert [x.when(name) for name in "abc"] == [1, 4, 5]


def test_who_waits_at_the_gate_gets_it_in_the_order_of_arrival(x: Server) -> None:
    sessions = [x.session() for _ in range(3)]
    for number, driver in enumerate(sessions):
        waits = x.dialect.query(commands.WaitInServer("x", 4))
        x.at(1 + number, driver, waits, str(number))
        x.at(4 + number, driver, x.dialect.query(commands.UnlockAll()))
    x.loop.run()
    assert [x.when(name) for name in "012"] == [1, 4, 5]
    assert [x.rows(name)[0][0] for name in "012"] == [0, 1, 1]


def test_a_deadlock_is_found_at_once_and_lets_the_other_go_on(x: Server) -> None:
    a, b = x.lend(), x.lend()
    x.make("y")
    x.at(1, a, ROW)
    x.at(1, b, ROW.replace("x", "y"))
    x.at(2, a, ROW.replace("x", "y"), "a")
    x.at(3, b, ROW, "b")
    x.loop.run()
    answers = [x.answers[name][1] for name in "ab"]
    failed = [answer.args[0] for answer in answers if isinstance(answer, Exception)]
    assert failed == [1213]
    assert [x.when(name) for name in "ab"] == [3, 3]


# --- the ends of sessions ----------------------------------------------------------------------


def test_what_a_session_had_is_free_when_it_has_been_ended(x: Server) -> None:
    ended, row, gate, other = x.session(), x.lend(), x.session(), x.session()
    x.at(1, ended, "START TRANSACTION")
    x.at(1, ended, ROW)
    x.at(1, ended, "DO GET_LOCK('gate', 0)")
    x.at(2, row, ROW, "row")
    x.at(2, gate, "SELECT GET_LOCK('gate', 4)", "gate")
    x.at(3, other, ended.end, "end")
    x.at(4, other, ended.end, "again")
    x.loop.run()
    assert [x.when(name) for name in ("row", "gate", "end")] == [3, 3, 3]
    assert (x.rows("end"), x.rows("again")) == (((1,),), ())


def test_a_statement_whose_session_is_ended_is_lost(x: Server) -> None:
    holder, waiter, other = x.lend(), x.session(), x.session()
    x.at(1, holder, ROW)
    x.at(1, waiter, "SET innodb_lock_wait_timeout = 4")
    x.at(2, waiter, ROW, "lost")
    x.at(3, other, waiter.end)
    x.loop.run()
    assert isinstance(x.answers["lost"][1], Lost)
    assert x.when("lost") == 3


def test_a_client_that_went_while_it_waited_is_noticed_as_late_as_on_a_real_server(
    x: Server,
) -> None:
    """At a user lock every second; at a row when the wait is over."""
    holder, gate, row = x.lend(), x.session(), x.session()
    x.at(1, holder, ROW)
    x.at(1, holder, "DO GET_LOCK('gate', 0)")
    x.at(2, gate, "DO GET_LOCK('gate', 4)", "gate")
    x.at(1, row, "SET innodb_lock_wait_timeout = 3")
    x.at(2, row, ROW, "row")
    for driver in (gate, row):
        x.do(2.3, lambda gone=driver: x.store.end_session(gone))  # type: ignore[misc]
    left: list[int] = []
    for moment in (2.9, 3.1, 4.9, 5.1):
        x.do(moment, lambda: left.append(len(x.store.sessions)))
    x.loop.run()
    assert [number - left[-1] for number in left] == [2, 1, 1, 0]
    assert set(x.answers) == {""}


def test_a_crash_keeps_what_is_committed_and_nothing_else(x: Server) -> None:
    a, b, c = x.session(), x.lend(), x.lend()
    x.at(1, a, x.dialect.query(commands.Grant("x", "token", "owner", 60)))
    x.at(2, b, "UPDATE dblock_lock SET fence = 100", "uncommitted")
    x.at(2, b, "DO GET_LOCK('gate', 0)")
    x.at(3, c, ROW, "waiting")
    x.do(4, x.store.crash)
    x.do(4.1, lambda: x.answers.update(down=(0.0, x.store.down)))
    x.loop.run()
    assert isinstance(x.answers["waiting"][1], Lost)
    assert x.answers["down"][1] is True
    assert x.store.sessions == ()
    row = x.store.rows()["x"]
    assert (row.token, row.fence, row.expires) == ("token", 1, 61)
    after = x.session()
    x.at(RESTART, after, "SELECT IS_FREE_LOCK('gate')", "gate")
    x.loop.run()
    assert x.rows("gate") == ((1,),)
    assert not x.store.down


def test_a_session_that_is_used_again_is_as_new(x: Server) -> None:
    driver = x.session()
    x.store.execute(driver, Query("START TRANSACTION", {}))
    x.store.execute(driver, Query("DO GET_LOCK('gate', 0)", {}))
    x.store.execute(driver, Query("UPDATE dblock_lock SET fence = 100", {}))
    x.loop.over = True
    x.store.end_session(driver)
    again = x.lend()
    assert again is driver
    assert x.store.rows()["x"].fence == 0
    found = x.store.execute(again, Query("SELECT IS_FREE_LOCK('gate'), @@autocommit", {}))
    assert found[0] == ((1, 0),)
    assert (again.longest, again.for_rows) == (0, 50)


# --- runs --------------------------------------------------------------------------------------


def test_row_lockers_wait_for_each_other_in_the_server(store: InnoDBStore) -> None:
    outcome = run(Scenario(row_locks), store, Schedule())
    assert outcome.violation is None
    order = ["b.lock_row#1", "a.commit#1", "b.lock_row#1<", "c.lock_row#2", "b.commit#1"]
    found = [outcome.steps.index(step) for step in (*order, "c.lock_row#2<")]
    assert found == sorted(found)


@pytest.mark.parametrize("scenario", [SCENARIOS["three"], Scenario(row_locks)])
def test_a_schedule_always_runs_the_same_way(store: InnoDBStore, scenario: Scenario) -> None:
    first = [told(run(scenario, store, Schedule.parse(line))) for line in SCHEDULES]
    for _ in range(3):
        for line, before in reversed([*zip(SCHEDULES, first, strict=True)]):
            assert told(run(scenario, store, Schedule.parse(line))) == before


ELSEWHERE = """
import sys
from pathlib import Path
from tests.simulation.innodb_sessions import SCHEDULES, told
from tests.simulation.run import run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.stores import STORES

store = STORES[sys.argv[1]](Path(sys.argv[2]))
for line in SCHEDULES:
    print(told(run(SCENARIOS["three"], store, Schedule.parse(line))))
"""


def test_a_schedule_runs_the_same_way_in_another_process(
    store: InnoDBStore, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, store.name, str(tmp_path)],
        env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = [str(told(run(SCENARIOS["three"], store, Schedule.parse(line)))) for line in SCHEDULES]
    assert done.stdout.splitlines() == here
