"""The simulation's MariaDB is the real one, but for its clock and its patience."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from dblock import Timeouts
from dblock.dialects import MariaDB
from dblock.dialects.adapter import Answer
from dblock.dialects.mariadb.adapter import PyMySQL
from dblock.dialects.query import Query, Result
from dblock.protocol import commands
from dblock.protocol.state import Found
from tests.conftest import find_or_skip
from tests.simulation.errors import Lost
from tests.simulation.loop import Loop
from tests.simulation.run import Clients, Outcome, Scenario, run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.store import RESTART
from tests.simulation.stores.mariadb import MariaDBStore
from tests.simulation.stores.mariadb_session import Driver
from tests.simulation.stores.mariadb_statements import virtual
from tests.simulation.thread import Thread

ROW = "SELECT fence FROM dblock_lock WHERE lock_name = 'x' FOR UPDATE"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDBStore]:
    made = find_or_skip(lambda: MariaDBStore(tmp_path_factory.mktemp("mariadb")))
    yield made
    made.close()


class Direct(PyMySQL):
    """The production adapter, on sessions of the store's that no client has."""

    def __init__(self, store: MariaDBStore) -> None:
        super().__init__(Timeouts(query=5))
        self._store = store

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        return self._store.execute(connection, query)


@dataclass
class Server:
    """The store without clients: sessions, statements, and when their answers came."""

    store: MariaDBStore
    loop: Loop
    dialect: MariaDB
    answers: dict[str, tuple[float, Any]] = field(default_factory=dict)

    def session(self) -> Driver:
        driver = self.store.open()
        end = self.dialect.adapter.prepare_connection(driver).end
        assert end is not None
        driver.end = self.dialect.query(end)
        return driver

    def lend(self) -> Driver:
        """A session as the user's driver makes it."""
        return self.store.open()

    def at(self, seconds: float, driver: Driver, query: Query[Any] | str, name: str = "") -> None:
        """Have a statement arrive at some moment; keep its answer under a name."""
        asked = Query(query, {}) if isinstance(query, str) else query

        def note(answer: Any) -> None:
            self.answers[name] = self.loop.now, answer

        self.do(seconds, lambda: self.store.perform(driver, asked, note))

    def do(self, seconds: float, action: Callable[[], object]) -> None:
        self.loop.at(seconds, self.loop.label("test"), lambda: void(action()))

    def when(self, name: str) -> float:
        return round(self.answers[name][0], 6)

    def rows(self, name: str) -> Any:
        answer = self.answers[name][1]
        if isinstance(answer, BaseException):
            raise answer
        return answer[0]

    def error(self, name: str) -> Any:
        return self.answers[name][1].args


def void(_: object) -> None: ...


def located(store: MariaDBStore) -> MariaDB:
    """The statements, once it is known where the tables are."""
    made = MariaDB(None, "dblock_", Timeouts(query=5), Direct(store))
    with closing(store.connect()) as connection:
        look: Query[Found] = made.query(commands.LookAround())
        rows, matched = PyMySQL(Timeouts()).send(
            connection, look._replace(sql=made.placed(look.sql))
        )
    made.settle(look.read(Result(rows, matched)).place)
    return made


@pytest.fixture
def server(store: MariaDBStore) -> Iterator[Server]:
    loop = Loop(Schedule())
    store.begin(loop)
    yield Server(store, loop, located(store))
    loop.over = True
    for driver in store.sessions:
        store.end_session(driver)


@pytest.fixture
def x(server: Server) -> Server:
    """The name x has a row, which nobody has."""
    driver = server.session()
    server.store.execute(driver, server.dialect.query(commands.Create("x")))
    return server


# --- time --------------------------------------------------------------------------------------

TIMES = "SELECT UTC_TIMESTAMP(6), SYSDATE(6)"


def seconds(moment: Any) -> float:
    """The seconds since the beginning of a run."""
    told = moment - pymysql.converters.convert_datetime("2026-01-01 00:00:00")
    return float(round(told.total_seconds(), 6))


def test_the_server_tells_the_loops_time(server: Server) -> None:
    own, lent = server.session(), server.lend()
    server.at(1.000001, own, TIMES, "own")
    server.at(2.345678, own, f"BEGIN NOT ATOMIC {TIMES}; END", "compound")
    server.at(3.999999, lent, "SELECT NOW(6), CURRENT_TIMESTAMP(6)", "lent")
    server.loop.run()
    for name, moment in (("own", 1.000001), ("compound", 2.345678), ("lent", 3.999999)):
        assert [*map(seconds, server.rows(name)[0])] == [moment, moment]


def test_the_databases_clock_has_a_rate(store: MariaDBStore) -> None:
    loop = Loop(Schedule())
    store.begin(loop, rate=1.1)
    server = Server(store, loop, located(store))
    server.at(10, server.session(), TIMES, "told")
    loop.run()
    assert seconds(server.rows("told")[0][1]) == 11
    loop.over = True
    for driver in store.sessions:
        store.end_session(driver)


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


def test_each_part_of_a_compound_statement_has_its_own_beginning(server: Server) -> None:
    holder, waiter = server.session(), server.session()
    server.at(1, holder, "DO GET_LOCK('gate', 0)")
    parts = "BEGIN NOT ATOMIC DO GET_LOCK('gate', 4); SELECT UTC_TIMESTAMP(6); END"
    server.at(2, waiter, parts, "told")
    server.at(3, holder, "DO RELEASE_LOCK('gate')")
    server.loop.run()
    assert seconds(server.rows("told")[0][0]) == 3


def test_on_a_real_clock_it_is_the_same(store: MariaDBStore) -> None:
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
    assert [x.rows(name) for name in "012"] == [((0,),), ((1,),), ((1,),)]


def limited(dialect: MariaDB, patience: float) -> dict[str, Query[Any]]:
    """Statements that wait no longer than so many seconds."""
    leave = dialect.query(commands.Leave("x", "t", "y"))
    return {
        "lock_row": dialect.query(commands.SelectForUpdate("x", patience, borrowed=True)),
        "leave": Query(leave.sql.replace("timeout = 1", f"timeout = {patience}"), leave.params),
        "wait_in_server": dialect.query(commands.WaitInServer("x", patience)),
        "FOR UPDATE WAIT": Query(f"{ROW} WAIT {patience}", {}),
        "GET_LOCK": Query(f"SELECT GET_LOCK(%(gate)s, {patience})", {"gate": "another"}),
    }


@pytest.mark.parametrize("kind", limited(MariaDB(None, "", Timeouts()), 1))
def test_a_wait_ends_at_its_virtual_time_as_on_a_real_clock(x: Server, kind: str) -> None:
    """Nothing of the statement is left then, and its session goes on."""
    holder, waiter = x.lend(), x.session()
    for sql in (
        "START TRANSACTION",
        x.dialect.query(commands.SelectForUpdate("x", None, borrowed=False)),
    ):
        x.at(0.1, holder, sql)
    gate = x.dialect.query(commands.WaitInServer("x", 0))
    x.at(0.1, holder, gate)
    x.at(0.1, holder, "DO GET_LOCK('another', 0)")
    x.at(1, waiter, "START TRANSACTION")
    x.at(2, waiter, limited(x.dialect, 3)[kind], "virtual")
    x.at(9, waiter, "SELECT 1", "next")
    query = limited(x.dialect, 1)[kind]
    with x.store.connect() as real:
        x.do(10, lambda: x.answers.update(real=(0.0, outcome(real, query))))
        x.loop.run()
    assert x.when("virtual") == 5
    assert repr(x.answers["virtual"][1]) == repr(x.answers["real"][1])
    assert x.rows("next") == ((1,),)


def outcome(real: Any, query: Query[Any]) -> Any:
    try:
        return PyMySQL(Timeouts()).send(real, query)
    except pymysql.Connection.Error as error:
        return error


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


def test_a_deadlock_is_found_at_once_and_lets_the_other_go_on(x: Server) -> None:
    a, b = x.lend(), x.lend()
    x.store.execute(a, x.dialect.query(commands.Create("y")))
    x.store.execute(a, Query("COMMIT", {}))
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
    x.at(3, other, ended.end, "again")
    x.loop.run()
    assert [x.when(name) for name in ("row", "gate", "end")] == [3, 3, 3]
    assert (x.rows("end"), x.rows("again")) == (((1,),), ())


def test_a_statement_whose_session_is_ended_is_lost(x: Server) -> None:
    holder, waiter, other = x.lend(), x.session(), x.session()
    x.at(1, holder, ROW)
    x.at(2, waiter, x.dialect.query(commands.SelectForUpdate("x", 4, borrowed=False)), "lost")
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
    x.at(2, row, x.dialect.query(commands.SelectForUpdate("x", 3, borrowed=False)), "row")
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


def lock_row(me: Thread) -> None:
    lock = me.locks.row("x", wait=30)
    if me.acquire(lock, 30):
        me.work(0.3)
        me.release(lock)


def row_locks(clients: Clients) -> None:
    for number, client in enumerate("abc"):
        clients.thread(client, lock_row, after=0.01 * number)


def test_row_lockers_wait_for_each_other_in_the_server(store: MariaDBStore) -> None:
    outcome = run(Scenario(row_locks), store, Schedule())
    assert outcome.violation is None
    order = ["b.lock_row#1", "a.commit#1", "b.lock_row#1<", "c.lock_row#2", "b.commit#1"]
    found = [outcome.steps.index(step) for step in (*order, "c.lock_row#2<")]
    assert found == sorted(found)


SCHEDULES = (
    "",
    "a.release#1+1.7 b.grant#1!pause:9",
    "a.grant#1!kill",
    "b.grant#1!crash-after",
    "c.wait_in_server#1!interrupt",
    "c.wait_in_server#1!deaf",
)


def told(outcome: Outcome) -> tuple[list[str], tuple[str, ...], float, str]:
    return outcome.steps, outcome.story, outcome.seconds, str(outcome.violation)


@pytest.mark.parametrize("scenario", [SCENARIOS["three"], Scenario(row_locks)])
def test_a_schedule_always_runs_the_same_way(store: MariaDBStore, scenario: Scenario) -> None:
    first = [told(run(scenario, store, Schedule.parse(line))) for line in SCHEDULES]
    for _ in range(3):
        for line, before in reversed([*zip(SCHEDULES, first, strict=True)]):
            assert told(run(scenario, store, Schedule.parse(line))) == before


ELSEWHERE = """
import sys
from pathlib import Path
from tests.simulation.run import run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.stores.mariadb import MariaDBStore
from tests.simulation.test_mariadb import SCHEDULES, told

store = MariaDBStore(Path(sys.argv[1]))
for line in SCHEDULES:
    print(told(run(SCENARIOS["three"], store, Schedule.parse(line))))
"""


def test_a_schedule_runs_the_same_way_in_another_process(
    store: MariaDBStore, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path)],
        env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = [str(told(run(SCENARIOS["three"], store, Schedule.parse(line)))) for line in SCHEDULES]
    assert done.stdout.splitlines() == here
