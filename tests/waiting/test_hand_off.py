"""A release makes the name the first waiter's, which then has it without asking (promise 10).

Who is passed a name and is not to do anything about it yet is another process, and stopped.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest
from sqlalchemy import make_url

from dblock import Lease, LockLost
from dblock.dialects.tickets import NUMBER, TICKET
from dblock.protocol import commands
from dblock.protocol.term import FIRST_TERM
from dblock.system import clock
from tests.faults.database import WRITER, shorten_pause
from tests.processes.workers import Process, queue_up
from tests.servers import execute
from tests.support import LONG, MOMENT, SECONDS, Threads, eventually
from tests.waiting.conftest import LISTENERS, NAME, Entry, lease
from tests.waiting.watching import Statements, Watched, calls
from tests.worlds.portal import WORLDS

both = pytest.mark.parametrize("world", WORLDS, indirect=True)
#: What is sent by who waits so that it can be seen waiting.
SEEN = {"register", "sweep", "unregister"}
# Seconds in which even a slow machine connects, and joins the queue.
JOINED = 1.0


class Row(NamedTuple):
    fence: int
    token: str | None
    owner: str
    #: For how long it was granted, or renewed; and how much of that is left.
    term: float
    left: float


def row(watched: Watched) -> Row:
    query = """SELECT fence, token, owner, extract(epoch FROM expires_at - acquired_at)::float8,
        extract(epoch FROM expires_at - clock_timestamp())::float8 FROM dblock_lock"""
    with watched.session() as session:
        return Row(*session.exec_driver_sql(query).one())


class Stopped(NamedTuple):
    """A process that stands in the queue, and is stopped."""

    process: Process
    entry: Entry

    def has(self, held: Row) -> bool:
        return held.token == self.entry.token

    def goes_on(self) -> None:
        """Let it go on; it has the name now, and holds it until it is killed."""
        self.process.send(signal.SIGCONT)
        assert [self.process.message() for _ in range(2)] == ["waiting", "held"]


@contextmanager
def stopped(watched: Watched) -> Iterator[Stopped]:
    before = len(watched.tickets)
    with Process(queue_up, watched.db.url, NAME) as process:
        watched.wait_for(before + 1)
        process.send(signal.SIGSTOP)
        yield Stopped(process, Entry(watched.tickets[-1]))


def held(watched: Watched) -> Lease:
    """The name, held for as long as a test likes."""
    mine = lease(watched.locks())
    assert mine.acquire()
    return mine


# --- who is passed it --------------------------------------------------------------------------


@both
def test_the_release_makes_the_first_waiter_the_holder(watched: Watched) -> None:
    mine = held(watched)
    fence = mine.fence
    with stopped(watched) as first, stopped(watched) as second:
        mine.release()
        now = row(watched)
        assert first.has(now)
        assert now.fence == fence + 1
        assert now.owner == first.entry.owner
        assert [Entry(entry) for entry in watched.tickets] == [second.entry]
        first.goes_on()
        assert row(watched).fence == fence + 1


def test_who_joins_while_it_is_released_is_seen(watched: Watched, threads: Threads) -> None:
    """The release waits for its row, and goes by the queue that is there then."""
    locks = watched.locks()
    mine = lease(locks)
    assert mine.acquire()
    release = locks._database.dialect.query(commands.PassOn(NAME, mine.token))
    assert release.patience is not None
    patient = release.sql.replace(f"'{1000 * release.patience:.0f}'", f"'{1000 * SECONDS:.0f}'")
    with stopped(watched) as first, watched.session() as joining, watched.session() as releasing:
        watched.change("SET waiters = NULL")
        joining.exec_driver_sql("BEGIN")
        joining.exec_driver_sql(f"UPDATE dblock_lock SET waiters = ARRAY['{first.entry.text}']")
        passing = threads.start(releasing.exec_driver_sql, patient, dict(release.params))
        eventually(lambda: len(watched.blocked) == 1)
        joining.exec_driver_sql("COMMIT")
        passing.result(SECONDS)
        assert first.has(row(watched))


@both
@pytest.mark.usefixtures("only_calls")
def test_it_has_the_name_without_a_statement_of_its_own(
    watched: Watched, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who waited for it a moment ago joins with the first statement it sends."""
    locks = watched.locks()
    mine, other = held(watched), lease(locks)
    assert not other.acquire(timeout=MOMENT)  # with connections made
    statements = Statements(locks._database, monkeypatch)

    def wait() -> list[str]:
        del statements.kinds[:]
        assert other.acquire()
        return [kind for kind in statements.kinds if kind not in SEEN]

    for asked in (["grant", "join"], ["join"]):
        waiting: Future[list[str]] = threads.start(wait)
        watched.wait_for(1)
        mine.release()
        assert waiting.result(SECONDS) == asked
        threads.run(other.release)
        assert mine.acquire()
        locks._database.contenders.names.note(NAME, True, clock.now() + SECONDS)
    assert calls(locks) == 2


def test_a_hot_name_that_nobody_has(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is joined for, and had with that; a try that does not wait forgets nothing of it."""
    locks = watched.locks()
    with lease(watched.locks()):  # so that it listens
        assert not lease(locks).acquire(timeout=JOINED)
    locks._database.contenders.names.note(NAME, True, clock.now() + SECONDS)
    mine, statements = lease(locks), Statements(locks._database, monkeypatch)
    for asked in ({"blocking": False}, {}):
        assert mine.acquire(**asked)
        mine.release()
    assert statements.kinds == ["grant", "release", "join", "take", "release"]


@both
def test_its_first_term_is_short_and_a_renewal_makes_it_long(watched: Watched) -> None:
    mine = held(watched)
    with stopped(watched) as first:
        mine.release()
        now = row(watched)
        assert first.has(now)
        assert FIRST_TERM - MOMENT < now.term < FIRST_TERM + MOMENT
        first.goes_on()
        eventually(lambda: row(watched).left > 10 * FIRST_TERM)
        assert first.has(row(watched))


def pass_on_soon(
    watched: Watched, threads: Threads, patch: pytest.MonkeyPatch, ttl: float
) -> list[str]:
    """Let a name change hands whose leases are that short; return what the next one asked."""
    while True:
        mine, locks = watched.locks().lease(NAME, ttl=ttl), watched.locks()
        assert mine.acquire()
        other = locks.lease(NAME, ttl=ttl, wait=SECONDS)
        statements, waiting = Statements(locks._database, patch), threads.start(other.acquire)
        eventually(partial(has_asked, watched, waiting))
        if not waiting.done():
            break
        # On a busy machine the holder's lease may end before the other one asks for the name.
        threads.run(release_if_held, other)
    release_if_held(mine)
    assert waiting.result(SECONDS)
    asked = list(statements.kinds)
    assert row(watched).left <= ttl
    threads.run(release_if_held, other)
    return asked


def has_asked(watched: Watched, waiting: Future[bool]) -> bool:
    return waiting.done() or len(watched.tickets) == 1


def release_if_held(lease: Lease) -> None:
    """A lease this short may be over by now."""
    with contextlib.suppress(LockLost):
        lease.release()


@both
@pytest.mark.parametrize("ttl", [0.5, 1.0])
def test_a_ttl_that_is_shorter_is_its_first_term(
    watched: Watched, threads: Threads, monkeypatch: pytest.MonkeyPatch, ttl: float
) -> None:
    assert pass_on_soon(watched, threads, monkeypatch, ttl).count("join") == 1


def test_it_is_passed_on_where_all_ttls_are_short(
    watched: Watched, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has asked for a longer one, nor does."""
    execute(watched.db.url, f"UPDATE dblock_witness SET longest_ttl = 0.5, {WRITER}")
    assert pass_on_soon(watched, threads, monkeypatch, 0.5).count("join") == 1


@both
@pytest.mark.parametrize("plan", [{"renew": False}, {"max_renewals": 1}], ids=str)
def test_who_does_not_renew_as_it_likes_has_the_whole_ttl_at_once(
    watched: Watched, threads: Threads, plan: dict[str, Any]
) -> None:
    mine = held(watched)
    other = watched.locks().lease(NAME, ttl=LONG, wait=SECONDS, **plan)

    def wait() -> float:
        assert other.acquire()
        return row(watched).left

    waiting = threads.start(wait)
    watched.wait_for(1)
    mine.release()
    assert waiting.result(SECONDS) > LONG / 2
    threads.run(other.release)


# --- who is not --------------------------------------------------------------------------------


@both
@pytest.mark.usefixtures("only_calls")
def test_a_guarded_hold_is_not_passed_on(
    watched: Watched, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction may be open yet: who is called has to wait for that by itself."""
    mine, locks = held(watched), watched.locks()
    fence, other = mine.fence, lease(locks)
    statements = Statements(locks._database, monkeypatch)
    engine = watched.world.engine(watched.db.url)
    with engine.connect() as connection:
        with mine.guard(connection):
            pass
        waiting = threads.start(other.acquire)
        watched.wait_for(1)
        before = len(statements.kinds)
        mine.release()
        eventually(lambda: "take" in statements.kinds[before:] or waiting.done())
        assert not waiting.done()
        now = row(watched)
        assert (now.fence, now.token) == (fence, None)
        connection.rollback()
    assert waiting.result(SECONDS)
    assert threads.run(lambda: row(watched).fence) == fence + 1
    engine.dispose()


@both
def test_a_waiter_that_died_is_passed_over(watched: Watched) -> None:
    mine = held(watched)
    with ExitStack() as dying:
        for _ in range(2):
            dying.enter_context(stopped(watched))
        with stopped(watched) as living:
            dying.close()
            eventually(lambda: len(execute(watched.db.url, LISTENERS)) == 1)
            mine.release()
            assert living.has(row(watched))
            assert watched.tickets == []
            living.goes_on()


def test_a_waiter_that_is_stopped_costs_the_short_term(watched: Watched, threads: Threads) -> None:
    """By the yardstick of what a statement takes here at the worst."""
    mine, second, took = held(watched), lease(watched.locks()), list[float]()
    fence = mine.fence
    with stopped(watched):
        waiting = threads.start(second.acquire)
        watched.wait_for(2)
        start = time.monotonic()
        mine.release()
        released = time.monotonic() - start
        while not waiting.done():
            began = time.monotonic()
            assert row(watched).fence > fence
            took.append(time.monotonic() - began)
        waited = time.monotonic() - start
        assert waiting.result()
        assert row(watched).fence == fence + 2
    assert FIRST_TERM - MOMENT < waited < FIRST_TERM + 0.5 + 10 * max(released, *took)


@both
def test_released_by_force_it_is_nobodys(watched: Watched) -> None:
    """The first is called to take it by itself."""
    mine, other = held(watched), watched.locks()
    fence = mine.fence
    with stopped(watched) as first:
        assert other.release(NAME, force=True)
        now = row(watched)
        assert (now.fence, now.token) == (fence, None)
        assert [Entry(entry) for entry in watched.tickets] == [first.entry]
        first.goes_on()
        assert row(watched).fence == fence + 1


@both
def test_nothing_is_passed_on_while_nothing_is_granted(watched: Watched) -> None:
    """As after a crash, by what the witness says."""
    mine = held(watched)
    fence = mine.fence
    with stopped(watched) as first:
        shorten_pause(watched.db.url, LONG)
        mine.release()
        now = row(watched)
        assert (now.fence, now.token) == (fence, None)
        shorten_pause(watched.db.url, 0)
        first.goes_on()
        assert row(watched).fence == fence + 1


def test_one_of_an_earlier_version_is_called_and_passed_nothing(watched: Watched) -> None:
    """Its entry is a ticket alone, and what it hears is that."""
    channel, mine = "0000abcd", held(watched)
    ticket, fence = f"{channel}1f", mine.fence
    there = make_url(watched.db.url).set(drivername="postgresql")
    with psycopg.connect(there.render_as_string(hide_password=False), autocommit=True) as old:
        number, kind = int(channel, 16), int.from_bytes(b"dblk", "big")
        old.execute(f"SELECT pg_advisory_lock({kind}, {number})")
        old.execute(f"LISTEN dblock_{channel}")
        with stopped(watched):
            watched.change(f"SET waiters = array_prepend('{ticket}', waiters)")
            mine.release()
            now = row(watched)
            assert (now.fence, now.token) == (fence, None)
            assert len(watched.tickets) == 2
            said = [call.payload for call in old.notifies(timeout=SECONDS, stop_after=1)]
    assert said == [ticket]


@both
@pytest.mark.usefixtures("only_calls")
def test_a_message_without_the_tickets_secret_half_is_nothing(
    watched: Watched, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, mine = watched.locks(), held(watched)
    statements, waiting = (
        Statements(locks._database, monkeypatch),
        threads.start(lease(locks).acquire),
    )
    watched.wait_for(1)
    eventually(lambda: SEEN - {"unregister"} <= set(statements.kinds))
    before, number = len(statements.kinds), watched.tickets[0][:NUMBER]
    channel = number[:8]
    for ticket in (channel, number.ljust(TICKET, "f")):
        said = f"concat_ws(' ', '{ticket}', 99, extract(epoch FROM clock_timestamp()), 2)"
        watched.ask(f"SELECT pg_notify('dblock_{channel}', {said})")
    time.sleep(MOMENT)
    assert not waiting.done()
    assert statements.kinds[before:] == []
    mine.release()
    assert waiting.result(SECONDS)
