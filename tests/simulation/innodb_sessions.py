"""Sessions of a store without clients, for the tests of MariaDB's store and of MySQL's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pymysql

from dblock import Timeouts
from dblock.dialects import DIALECTS, Adapter, Dialect
from dblock.dialects.query import Query, Result
from dblock.protocol import commands
from dblock.protocol.state import Found
from tests.simulation.loop import Loop
from tests.simulation.run import Clients, Outcome
from tests.simulation.schedule import Schedule
from tests.simulation.stores.innodb import InnoDBStore
from tests.simulation.stores.innodb_session import Driver
from tests.simulation.stores.innodb_statements import EPOCH
from tests.simulation.thread import Thread

ROW = "SELECT fence FROM dblock_lock WHERE lock_name = 'x' FOR UPDATE"


@dataclass
class Server:
    """The store without clients: sessions, statements, and when their answers came."""

    store: InnoDBStore
    loop: Loop
    dialect: Dialect
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

    def make(self, name: str) -> Server:
        """Let a name have a row, which nobody has."""
        driver = self.session()
        for table, column in (("dblock_guard", "writes"), ("dblock_lock", "fence")):
            sql = f"INSERT INTO {table} (lock_name, {column}) VALUES (%(name)s, 0)"
            self.store.execute(driver, Query(sql, {"name": name}))
        return self

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


def direct(store: InnoDBStore) -> Adapter:
    """Return the production adapter, on sessions of the store's that no client has."""

    made = store.plain(Timeouts(query=5))
    made.send = lambda session, query, *args: store.execute(session, query)  # type: ignore[method-assign]
    return made


def located(store: InnoDBStore) -> Dialect:
    """Return the statements, once it is known where the tables are."""
    made = DIALECTS[store.database](None, "dblock_", Timeouts(query=5), direct(store))
    with closing(store.connect()) as connection:
        look: Query[Found] = made.query(commands.LookAround())
        rows, matched = store.plain(Timeouts()).send(
            connection, look._replace(sql=made.placed(look.sql))
        )
    made.settle(look.read(Result(rows, matched)).place)
    return made


def beginning(
    store: InnoDBStore, rate: float = 1.0, schedule: Schedule | None = None
) -> Iterator[Server]:
    """A run without clients, whose sessions are ended behind it."""
    loop = Loop(schedule or Schedule())
    store.begin(loop, rate)
    yield Server(store, loop, located(store))
    loop.over = True
    for driver in store.sessions:
        store.end_session(driver)


running = contextmanager(beginning)


def seconds(moment: Any) -> float:
    """Return the seconds since the beginning of a run."""
    told = moment - pymysql.converters.convert_datetime(EPOCH)
    return float(round(told.total_seconds(), 6))


def ends_in_time(x: Server, waiting: Callable[[float], Query[Any]]) -> None:
    """A statement's wait ends at its virtual time as on a real clock.

    Nothing of the statement is left then, and its session goes on. Somebody has the name x, its
    user lock, and another one.
    """
    holder, waiter = x.lend(), x.lend()
    lock = x.dialect.query(commands.SelectForUpdate("x", None, borrowed=False))
    x.at(0.1, holder, "START TRANSACTION")
    x.at(0.2, holder, lock)
    x.at(0.3, holder, x.dialect.query(commands.WaitInServer("x", 0)))
    x.at(0.4, holder, "DO GET_LOCK('another', 0)")
    x.at(1, waiter, "START TRANSACTION")
    x.at(2, waiter, waiting(3), "virtual")
    x.at(9, waiter, "SELECT 1", "next")
    with x.store.connect() as real:
        x.do(10, lambda: x.answers.update(real=(0.0, outcome(x.store, real, waiting(1)))))
        x.loop.run()
    assert x.when("virtual") == 5
    assert repr(x.answers["virtual"][1]) == repr(x.answers["real"][1])
    assert x.rows("next") == ((1,),)


def outcome(store: InnoDBStore, real: Any, query: Query[Any]) -> Any:
    """Return what a statement comes to on a connection outside of the simulation."""
    try:
        return store.plain(Timeouts()).send(real, query)
    except pymysql.Connection.Error as error:
        return error


def lock_row(me: Thread) -> None:
    lock = me.locks.row("x", wait=30)
    if me.acquire(lock, 30):
        me.work(0.3)
        me.release(lock)


def row_locks(clients: Clients) -> None:
    """Three lock a row one after the other."""
    for number, client in enumerate("abc"):
        clients.thread(client, lock_row, after=0.01 * number)


#: Schedules in which sessions wait for a name, and come to different ends.
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
