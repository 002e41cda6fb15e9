"""A role that may do nothing but connect: what it can do to those who wait (promise 10)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from sqlalchemy import make_url

from dblock.dialects.query import Query
from tests.conftest import Database, new_name, upgrade
from tests.faults.proxy import Proxy
from tests.servers import Server, execute
from tests.support import MOMENT, SECONDS, Threads, eventually
from tests.waiting.conftest import Entry, Queue, lease, take_turn
from tests.waiting.user_lock import WatchedUserLock
from tests.worlds.portal import WORLDS
from tests.worlds.world import World

PASSWORD = "no secret"
A_SECOND = 10  # so many times may one name be looked at within that, whoever calls
STATEMENTS = 2  # of a look: a try, and who has it
CALLS = 3000

both = pytest.mark.parametrize("world", WORLDS, indirect=True)


class Stranger:
    """Knows what everybody can see, and calls."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        connection.autocommit = True

    @property
    def channels(self) -> list[str]:
        """Each is a number, and its listener's advisory lock is on that."""
        locks = f"""SELECT objid FROM pg_locks JOIN pg_database AS d ON d.oid = database
            WHERE datname = current_database() AND classid = {int.from_bytes(b"dblk", "big")}"""
        return [f"{number:08x}" for (number,) in self._connection.execute(locks)]

    def listen(self, channel: str) -> None:
        """Hear what is said on a channel, from now on."""
        self._connection.execute(f"LISTEN dblock_{channel}")

    def hear(self) -> str:
        (said,) = self._connection.notifies(timeout=SECONDS, stop_after=1)
        return said.payload

    def call(self, channel: str, said: str, times: int = 1) -> None:
        for _ in range(times):
            self._connection.execute(f"SELECT pg_notify('dblock_{channel}', {said})")


@contextmanager
def a_stranger(url: str) -> Iterator[Stranger]:
    name = new_name()[:30]
    execute(url, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    there = make_url(url)
    with psycopg.connect(
        host=there.host,
        port=there.port,
        dbname=there.database,
        user=name,
        password=PASSWORD,
        client_encoding="utf8",
    ) as connection:
        yield Stranger(connection)
    execute(url, f"DROP ROLE {name}")


@pytest.fixture
def stranger(queue: Queue) -> Iterator[Stranger]:
    with a_stranger(queue.db.url) as made:
        yield made


def quiet(proxy: Proxy) -> None:
    """Wait until who waits has told of it, and asks nothing any more."""
    eventually(lambda: sum(b"dblock_waiter" in asked for asked in proxy.requests) == 2)
    while True:
        before = len(proxy.requests)
        time.sleep(MOMENT)
        if len(proxy.requests) == before:
            return


@both
@pytest.mark.usefixtures("only_calls")
@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf8", "NULL"),
        ("utf8", "'é'"),
        ("utf8", "repeat('x', 7999)"),
        ("latin1", "'é'"),  # one byte, which is not UTF-8
        ("latin1", "'€'"),  # which the server cannot tell it
    ],
)
def test_what_is_no_ticket_is_nothing(
    queue: Queue, world: World, threads: Threads, stranger: Stranger, encoding: str, said: str
) -> None:
    """No error, no statement; and who waits is called as ever."""
    turns: list[int] = []
    url = f"{queue.db.url}?client_encoding={encoding}"
    with Proxy(url) as proxy, queue.timed(world.locks(proxy.url)) as locks:
        with lease(queue.locks()):
            threads.start(take_turn, locks, turns, 1)
            queue.wait_for(1)
            quiet(proxy)
            before = len(proxy.requests)
            (channel,) = stranger.channels
            stranger.call(channel, said)
            stranger.call(channel, f"'{channel}{'f' * 16}'")
            time.sleep(MOMENT)
            assert len(proxy.requests) == before
        threads.join()
    assert turns == [1]


@both
@pytest.mark.usefixtures("only_calls")
def test_bytes_that_are_no_text_are_nothing(
    postgresql: Server, world: World, threads: Threads, times: dict[str, float]
) -> None:
    """A database without an encoding passes on whatever it is given."""
    name, turns = new_name(), list[int]()
    execute(
        postgresql.url,
        f'CREATE DATABASE "{name}" ENCODING SQL_ASCII LOCALE "C" TEMPLATE template0',
    )
    url = f"{postgresql.url_for(name)}?client_encoding=utf8"
    try:
        upgrade(url)
        with ExitStack() as stack, a_stranger(url) as stranger:
            queue = Queue(Database("postgresql", url, postgresql), stack, times)
            locks = stack.enter_context(queue.timed(world.locks(url)))
            with lease(queue.locks()):
                threads.start(take_turn, locks, turns, 1)
                queue.wait_for(1)
                (channel,) = stranger.channels
                stranger.call(channel, "chr(233)")
                time.sleep(MOMENT)
            threads.join()
            assert stranger.channels == [channel]  # nor did the server end who listens
    finally:
        postgresql.drop_database(name)
    assert turns == [1]


def test_called_in_the_middle_of_a_statement(queue: Queue, stranger: Stranger) -> None:
    """As a channel is seen a moment before its listener listens."""
    database = queue.locks()._database
    connection = database.connections.take()
    channel = database.dialect.adapter.listen(
        connection.driver, connection.session, database.runtime.token
    )
    assert channel is not None
    stranger.call(channel, "'é'")
    assert database.dialect.adapter.ask(connection.driver, Query("SELECT 1", {})) == (1,)
    database.connections.drop(connection)


@both
@pytest.mark.usefixtures("only_calls")
def test_called_for_nothing_it_is_looked_at_now_and_then(
    queue: Queue, world: World, threads: Threads, stranger: Stranger
) -> None:
    """By one who has read the lock table, where the tickets are."""
    turns: list[int] = []
    with Proxy(queue.db.url) as proxy, queue.timed(world.locks(proxy.url)) as locks:
        with lease(queue.locks()):
            threads.start(take_turn, locks, turns, 1)
            queue.wait_for(1)
            quiet(proxy)
            ticket = Entry(*queue.tickets).ticket
            before, start = len(proxy.requests), time.monotonic()
            stranger.call(ticket[:8], f"'{ticket}'", CALLS)
            took = time.monotonic() - start
            looks = len(proxy.requests) - before
            assert 0 < looks <= STATEMENTS * (10 + A_SECOND * took)  # at first more often
        threads.join()
    assert turns == [1]


def test_who_listens_too_hears_nothing_to_call_with(
    queue: Queue, threads: Threads, monkeypatch: pytest.MonkeyPatch, stranger: Stranger
) -> None:
    """Everybody may listen on a channel: what is said there is no secret from then on.

    One is passed the name while it is stopped, and waits again when that is over.
    """
    locks, go_on = queue.locks(), threading.Event()
    readable = locks._database.runtime.readable

    def stopped(descriptor: int, seconds: float) -> bool:
        return go_on.wait(SECONDS) and readable(descriptor, seconds)

    monkeypatch.setattr(locks._database.runtime, "readable", stopped)
    holder, second = lease(queue.locks()), lease(queue.locks())
    assert holder.acquire()
    waiting = threads.start(lease(locks).acquire)
    queue.wait_for(1)
    (channel,) = stranger.channels
    stranger.listen(channel)
    holder.release()
    (ticket, *_) = stranger.hear().split(" ")
    assert second.acquire()
    go_on.set()
    queue.wait_for(1)
    for _ in range(3):
        time.sleep(MOMENT)
        stranger.call(
            channel, f"concat_ws(' ', '{ticket}', 99, extract(epoch FROM clock_timestamp()), 60)"
        )
    time.sleep(MOMENT)
    assert not waiting.done()
    second.release()
    assert waiting.result(SECONDS)


def test_a_user_lock_that_a_stranger_has_stops_nobody(
    user_lock: WatchedUserLock, threads: Threads
) -> None:
    """What user locks are called can be computed."""
    turns: list[int] = []

    def work(number: int) -> None:
        locks = user_lock.locks()
        for _ in range(2):
            take_turn(locks, turns, number)

    with user_lock.taken():
        for number in range(3):
            threads.start(work, number)
        threads.join()
    assert sorted(turns) == [0] * 2 + [1] * 2 + [2] * 2
