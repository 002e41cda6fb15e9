"""The simulation's PostgreSQL does what a real one does, when the simulation says so."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled
from sqlalchemy import text
from sqlalchemy.exc import DataError

from dblock import Locks
from dblock.dialects.adapter import Answer
from dblock.dialects.postgresql.fragments import LAZY
from dblock.dialects.postgresql.witness import SERVER
from dblock.dialects.query import Query
from dblock.protocol.epoch import consult
from dblock.schema import upgrade
from tests.conftest import OwnServers
from tests.servers import PostgreSQL, reaper
from tests.simulation.loop import Loop
from tests.simulation.run import Clients, Outcome, Scenario, run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.stores.postgresql import LONGEST_TTL, PostgreSQLStore
from tests.simulation.stores.postgresql_server import EPOCH, SimulatedServer
from tests.simulation.stores.postgresql_session import Driver
from tests.simulation.stores.postgresql_tables import Tables
from tests.simulation.tables import USERS
from tests.simulation.thread import Thread

HAND_OFF, THREE = SCENARIOS["hand-off"], SCENARIOS["three"]

_CREATE = "INSERT INTO dblock_lock (lock_name, fence) VALUES (%(name)s, 0)"
_LOCK = "SELECT fence FROM dblock_lock WHERE lock_name = %(name)s FOR UPDATE"
_RAISE = "UPDATE dblock_lock SET fence = fence + 1 WHERE lock_name = %(name)s RETURNING fence"
_CHANGES = (_RAISE, f"{_RAISE}, {LAZY}", f"{_RAISE}, {LAZY}")
_WAL_WRITER = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


class Stage:
    """Sessions at a store, without clients; ``heard`` is what came of what they said, and when."""

    def __init__(self, store: PostgreSQLStore, *names: str) -> None:
        self.store = store
        self.loop = Loop(Schedule())
        store.begin(self.loop)
        self.heard: list[tuple[float, str, Any]] = []
        first = store.open()
        for name in names:
            self.say(first, _CREATE, name)

    def say(
        self, session: Driver, sql: str, name: str = "", label: str = "", delay: float = 0.0
    ) -> None:
        """Have a statement carried out, now or later."""

        def then(answer: Answer | BaseException) -> None:
            what = type(answer) if isinstance(answer, BaseException) else list(answer[0])
            if label:
                self.heard.append((round(self.loop.now, 6), label, what))

        def begin() -> None:
            self.store.perform(session, Query(sql, {"name": name}), then)

        if delay:
            self.loop.at(delay, f"{label or 'said'}#1", begin)
        else:
            begin()

    def lock(self, session: Driver, name: str, label: str = "") -> None:
        self.say(session, "BEGIN")
        self.say(session, _LOCK, name, label)


def test_time_passes_when_the_simulation_says_so(durable: PostgreSQLStore) -> None:
    stage = Stage(durable)
    session = durable.open()
    for delay in (1.5, 3.25):
        stage.say(session, _NOW, label="now", delay=delay)

    stage.loop.run()

    start = EPOCH.timestamp()
    assert stage.heard == [(at, "now", [(start + at,)]) for at in (1.5, 3.25)]


def test_a_statement_that_waited_has_the_time_at_which_it_went_on(durable: PostgreSQLStore) -> None:
    stage = Stage(durable, "x")
    holder, waiter = durable.open(), durable.open()
    stage.lock(holder, "x")
    locked = f"WITH locked AS MATERIALIZED ({_LOCK}) {_NOW} FROM locked"
    stage.say(waiter, locked, "x", "waiter")
    stage.say(holder, "COMMIT", delay=2.0)

    stage.loop.run()

    assert stage.heard == [(2.0, "waiter", [(EPOCH.timestamp() + 2,)])]


def test_those_who_wait_for_a_row_go_on_one_by_one(durable: PostgreSQLStore) -> None:
    """Also where all of them are woken at once, because the row has a newer version."""
    for _ in range(10):
        stage = Stage(durable, "x")
        holder, *waiters = (durable.open() for _ in range(6))
        stage.say(holder, "BEGIN")
        stage.say(holder, _RAISE, "x")
        for number, waiter in enumerate(waiters):
            stage.say(waiter, _RAISE, "x", f"{number}")
        assert stage.heard == []

        stage.say(holder, "COMMIT")

        assert stage.heard == [(0.0, str(number), [(number + 2,)]) for number in range(5)]


def test_patience_is_virtual(durable: PostgreSQLStore) -> None:
    stage = Stage(durable, "x")
    holder, waiter, other = (durable.open() for _ in range(3))
    stage.lock(holder, "x")
    stage.say(waiter, "SELECT set_config('lock_timeout', '2000', false)")
    stage.say(waiter, _LOCK, "x", "lock_timeout")
    stage.say(other, "SELECT set_config('statement_timeout', '3000', false)")
    stage.say(other, _LOCK, "x", "statement_timeout")

    stage.loop.run()

    assert stage.heard == [
        (2.0, "lock_timeout", LockNotAvailable),
        (3.0, "statement_timeout", QueryCanceled),
    ]


def test_patience_begins_anew_with_each_lock(durable: PostgreSQLStore) -> None:
    stage = Stage(durable, "x", "y")
    holders, waiter = {name: durable.open() for name in "xy"}, durable.open()
    for name, holder in holders.items():
        stage.lock(holder, name)
    stage.say(waiter, "SELECT set_config('lock_timeout', '2000', false)")
    both = "SELECT lock_name FROM dblock_lock WHERE lock_name >= %(name)s ORDER BY 1 FOR UPDATE"
    stage.say(waiter, both, "x", "waiter")
    stage.say(holders["x"], "COMMIT", delay=1.5)

    stage.loop.run()

    assert stage.heard == [(3.5, "waiter", LockNotAvailable)]


def test_a_setting_of_a_transaction_ends_with_it(durable: PostgreSQLStore) -> None:
    stage = Stage(durable, "x")
    holder, waiter = durable.open(), durable.open()
    stage.lock(holder, "x")
    stage.say(waiter, "SELECT set_config('lock_timeout', '2000', true)")
    stage.say(waiter, _LOCK, "x", "waiter")
    stage.say(holder, "COMMIT", delay=9.0)

    stage.loop.run()

    assert stage.heard == [(9.0, "waiter", [(0,)])]


def test_who_looks_first_ends_a_deadlock(durable: PostgreSQLStore) -> None:
    stage = Stage(durable, "x", "y")
    one, two = durable.open(), durable.open()
    stage.lock(one, "x")
    stage.lock(two, "y")
    stage.say(one, _LOCK, "y", "one")
    # It closes the circle when the other has looked already.
    stage.say(two, _LOCK, "x", "two", delay=1.25)

    stage.loop.run()

    assert stage.heard == [(2.25, "two", DeadlockDetected), (2.25, "one", [(0,)])]


def test_a_session_that_ends_is_in_nobodys_way(durable: PostgreSQLStore) -> None:
    stage = Stage(durable, "x")
    holder, first, second = (durable.open() for _ in range(3))
    gate = "SELECT pg_advisory_lock(1) IS NOT NULL"
    stage.say(holder, gate)
    stage.say(first, gate, label="first")
    stage.say(second, gate, label="second")

    durable.end_session(first)
    assert stage.heard == []
    durable.end_session(holder)
    assert stage.heard == [(0.0, "second", [(True,)])]


def test_who_is_called_hears_of_it_after_the_commit(durable: PostgreSQLStore) -> None:
    outcome = run(HAND_OFF, durable, Schedule())
    at = outcome.steps.index
    assert outcome.violation is None
    assert at("a.release#1") < at("a.pass_on#1") < at("b.notified#1")
    assert "b.join#2" not in outcome.steps


@pytest.mark.parametrize("line", ["b.notified#1!lost", "b.notified#1!deaf", "b.notified#1+9"])
def test_a_call_that_does_not_come_costs_a_look(durable: PostgreSQLStore, line: str) -> None:
    plain, late = (run(HAND_OFF, durable, Schedule.parse(text)) for text in ("", line))
    assert plain.violation is late.violation is None
    assert plain.seconds + 1 < late.seconds
    assert "b.look_queued#1" in late.steps


@pytest.mark.parametrize("line", ["b.notified#1!cut", "b.listen#1!cut:0.2", "b.listen#1!cut:0"])
def test_who_listens_hears_that_there_is_an_end(durable: PostgreSQLStore, line: str) -> None:
    plain, cut = (run(HAND_OFF, durable, Schedule.parse(text)) for text in ("", line))
    assert cut.violation is None
    assert cut.story == plain.story
    assert cut.seconds < plain.seconds + 0.1


def test_a_notification_of_a_transaction_that_fails_is_none(durable: PostgreSQLStore) -> None:
    stage = Stage(durable)
    session = durable.open()
    for end in ("ROLLBACK", "COMMIT"):
        stage.say(session, "BEGIN")
        stage.say(session, "SELECT pg_notify('here', 'now')")
        assert session.requests.notifications == [("here", "now")]
        stage.say(session, end)
        assert session.requests.notifications == []
    stage.say(session, "SELECT pg_notify('here', 'now'), 1 / 0", label="failed")
    assert session.requests.notifications == []
    assert stage.heard[0][2] is psycopg.errors.DivisionByZero


# --- crashes and failovers -----------------------------------------------------------------------


def _change(stage: Stage) -> None:
    """Commit a change that is waited for, and two that are not."""
    session = stage.store.open()
    for statement in _CHANGES:
        stage.say(session, statement, "x")


@pytest.mark.parametrize(("lost", "fence"), [(0, 3), (1, 2), (2, 1), (9, 1)])
def test_a_crash_loses_what_was_not_waited_for(
    durable: PostgreSQLStore, lost: int, fence: int
) -> None:
    stage = Stage(durable, "x")
    _change(stage)
    durable.crash(lost)
    assert durable.rows()["x"].fence == fence
    assert (durable.forgot >= 0) == (lost > 0)


def test_a_later_commit_that_is_waited_for_keeps_those_before(durable: PostgreSQLStore) -> None:
    stage = Stage(durable, "x")
    _change(stage)
    stage.say(durable.open(), _RAISE, "x")
    durable.crash(9)
    assert durable.rows()["x"].fence == 4


def test_a_standby_has_not_heard_of_the_last_commits(durable: PostgreSQLStore) -> None:
    stage = Stage(durable, "x")
    _change(stage)
    stage.say(durable.open(), _RAISE, "x")
    stage.say(durable.open(), SERVER, label="before")
    durable.promote(2)
    stage.say(durable.open(), SERVER, label="after")
    assert durable.rows()["x"].fence == 2
    (_, _, [(before,)]), (_, _, [(after,)]) = stage.heard
    assert before.endswith("/00000001")
    assert after.endswith("/00000002")


@pytest.mark.parametrize("kind", ["durable", "volatile"])
def test_a_crash_leaves_what_a_real_one_does(
    kind: str, request: pytest.FixtureRequest, own_server: OwnServers
) -> None:
    store: PostgreSQLStore = request.getfixturevalue(kind)
    stage = Stage(store, "x")
    _change(stage)
    store.crash(9)

    server = own_server(PostgreSQL)
    upgrade(server.url, durability=kind)
    with Locks(server.url) as locks:
        locks._database.run(consult(locks._database.exchange(), LONGEST_TTL))
    url = server.url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (_CREATE, *_CHANGES[:1]):
            connection.execute(statement, {"name": "x"})
        (writer,) = connection.execute(_WAL_WRITER).fetchone() or ()
        reaper.send(writer, signal.SIGSTOP)  # it would write what nobody waits for
        for statement in _CHANGES[1:]:
            connection.execute(statement, {"name": "x"})
        reaper.send(writer, signal.SIGKILL)
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                connection.execute("SELECT pg_sleep(0.01)")
    while True:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url) as connection:
            real = _facts(Tables(connection))
            break
    simulated = _facts(store.tables)
    assert all(simulated.pop(table) == [] for table in USERS.tables)
    assert real == simulated


def _facts(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    """What is in tables, without the moments and names of the server they are on."""
    found = tables.decoded()
    for row in (row for rows in found.values() for row in rows):
        for column in ("acquired_at", "expires_at", "grants_from", "valid_until", "server"):
            row.pop(column, None)
    return found


# --- the users' own transactions -----------------------------------------------------------------


def _play(store: PostgreSQLStore, *runs: Callable[[Thread], object]) -> Outcome:
    """Let clients do something, each a moment after the one before."""

    def play(clients: Clients) -> None:
        for number, do in enumerate(runs):
            clients.thread("abc"[number], do, after=0.01 * number)

    outcome = run(Scenario(play), store, Schedule())
    assert outcome.violation is None, outcome.violation
    return outcome


def test_a_lent_connection_says_how_its_transaction_is(durable: PostgreSQLStore) -> None:
    def asking(me: Thread) -> None:
        def trouble(*, locking: bool = True) -> str | None:
            return me.locks._database.dialect.adapter.transaction_problem(driver, locking)

        with durable.lending.connect() as connection:
            driver: Any = connection.connection.driver_connection
            assert trouble() is None
            driver.autocommit = True
            assert "autocommit" in (trouble() or "")
            assert trouble(locking=False) is None
            driver.autocommit = False
            with pytest.raises(DataError):
                connection.execute(text("SELECT 1 / 0"))
            assert "failed" in (trouble() or "")
            connection.rollback()
            assert trouble() is None
        assert "closed" in (trouble() or "")

    _play(durable, asking)


def test_a_users_transaction_is_in_the_way_until_it_ends(durable: PostgreSQLStore) -> None:
    def guarding(me: Thread) -> None:
        lease = me.lease("x", ttl=6)
        with me.holding(lease, 0):
            assert not durable.locked("x")
            with me.transaction() as connection:
                me.guarded(connection, lease)
                assert durable.locked("x")
                assert not durable.locked("y")
            assert not durable.locked("x")

    assert "x written 1" in _play(durable, guarding).story


def test_what_waits_in_a_users_transaction_has_a_virtual_end(durable: PostgreSQLStore) -> None:
    waited = []

    def locking(me: Thread) -> None:
        with me.transaction() as connection:
            begun = me.loop.now
            had = me.acquire(me.locks.row("x", on=connection), 2)
            waited.append((had, round(me.loop.now - begun)))
            connection.execute(text("SELECT 1"))
            me.work(9)

    _play(durable, locking, locking)
    assert waited == [(True, 0), (False, 2)]


def test_a_snapshot_is_older_than_what_came_after_it(durable: PostgreSQLStore) -> None:
    outcome = run(SCENARIOS["guarded-snapshot"], durable, Schedule())
    assert outcome.violation is None
    assert {"x written 1", "b Conflict"} < set(outcome.story)


def test_what_a_run_begins_with_is_lost_in_no_failover(durable: PostgreSQLStore) -> None:
    outcome = run(SCENARIOS["stock"], durable, Schedule.parse("b.commit#1!promote:9"))
    assert outcome.violation is None
    assert durable.committed().stock.keys() == {1}


# --- the same schedule ---------------------------------------------------------------------------


_LINES = (
    "",
    "a.grant#1!unanswered",
    "b.join#1!crash:9 a.release#1+1.7",
    "b.notified#1!cut c.notified#1!lost",
    "a.release#1!promote:3 c.listen#1!cut:0.2",
    "b.join#1!crash-after:9",
    "b.look_queued#4!promote:1",
    "c.release#1!promote:1",
)


@pytest.mark.parametrize("kind", ["durable", "volatile", "pooled"])
def test_the_same_schedule_gives_the_same_run(kind: str, request: pytest.FixtureRequest) -> None:
    store: PostgreSQLStore = request.getfixturevalue(kind)
    runs = [[run(THREE, store, Schedule.parse(line)) for line in _LINES] for _ in range(3)]
    assert [outcome.violation for outcome in runs[0]] == [None] * len(_LINES)
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("scenario", ["cycle", "borrowed-row", "stock-snapshot", "once"])
def test_users_do_the_same_each_time(durable: PostgreSQLStore, scenario: str) -> None:
    lines = ("", "a.insert#1!late:1", "b.commit#1!crash:9", "a.commit#1+1.7 b.connect#2!lost")
    schedules = [Schedule.parse(line) for line in lines]
    runs = [[run(SCENARIOS[scenario], durable, one) for one in schedules] for _ in range(2)]
    assert [outcome.violation for outcome in runs[0]] == [None] * len(lines)
    assert runs[0] == runs[1]


def test_the_same_schedule_gives_the_same_run_in_another_process(durable: PostgreSQLStore) -> None:
    here = [run(THREE, durable, Schedule.parse(line)) for line in _LINES]
    there = subprocess.run(
        [sys.executable, "-m", __name__, *_LINES], capture_output=True, text=True, check=True
    )
    assert there.stdout.splitlines() == [repr(outcome) for outcome in here]


if __name__ == "__main__":
    with SimulatedServer() as server:
        store = PostgreSQLStore(server)
        for line in sys.argv[1:]:
            print(run(THREE, store, Schedule.parse(line)))
