"""What becomes of a statement whose request, reply or connection is lost (promise 7)."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, text
from sqlalchemy.engine import Engine

from dblock import LockLost, Locks, OutcomeUnknown, SchemaMissing, Timeouts, Unavailable
from dblock.protocol.retry import PAUSE
from tests.conftest import Database, NewDatabase, OwnServers
from tests.faults.conftest import GIVE_BACK, GRANT, RELEASE, RENEW, Net, refuse_set_up
from tests.faults.proxy import SECONDS, Lose, Proxy
from tests.servers import FAMILY, OWN, OwnServer, execute
from tests.support import Threads, eventually, new_session

TTL = 2.0  # one that is over while a test waits
QUICK = Timeouts(connect=1, query=0.5, socket=1)
SESSIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid()",
    **dict.fromkeys(
        FAMILY,
        "SELECT id FROM information_schema.processlist WHERE db = database() "
        "AND id <> connection_id()",
    ),
}
END = {"postgresql": "SELECT pg_terminate_backend({})", **dict.fromkeys(FAMILY, "KILL {}")}


def locked(locks: Locks, name: str) -> bool:
    with locks.row(name, wait=0) as row:
        return row.held


def end_sessions(db: Database) -> int:
    """End all sessions of the database but this one; return how many there were."""
    sessions = execute(db.url, SESSIONS[db.kind])
    for (session,) in sessions:
        execute(db.url, END[db.kind].format(session))
    eventually(lambda: execute(db.url, SESSIONS[db.kind]) == [])
    return len(sessions)


def end_nothing(net: Net, patch: pytest.MonkeyPatch) -> None:
    """As behind a pooler, where a session cannot be told from another."""
    kind = type(net.locks._database.dialect.adapter)
    prepare = kind.prepare_connection
    patch.setattr(
        kind,
        "prepare_connection",
        lambda adapter, connection: replace(prepare(adapter, connection), end=None),
    )


# --- the lease ---------------------------------------------------------------------------------


def test_a_dropped_handle_goes_at_once_whatever_was_settled(net: Net) -> None:
    """Not with the next garbage collection: until then its thread would still hold the name."""
    lease = net.locks.lease("report", ttl=60)
    gone = weakref.ref(lease)
    gc.disable()
    try:
        net.proxy.lose(Lose.REPLY, GRANT)
        assert lease.acquire()
        for _ in range(2):  # the second is not taken for a connection that had died while idle
            net.proxy.lose(Lose.REPLY, RENEW)
        lease.renew()
        del lease
        assert gone() is None
    finally:
        gc.enable()


def test_a_grant_whose_reply_is_lost_is_held(net: Net) -> None:
    lost = net.proxy.lose(Lose.REPLY, GRANT)
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire()
    assert lost.done.wait(SECONDS)
    assert lease.held
    assert lease.fence == 1
    (state,) = net.direct.list()
    assert state.fence == 1
    lease.check()
    lease.release()
    assert net.direct.list() == []


def test_the_term_of_a_settled_grant_is_that_of_the_renewal_that_proves_it(net: Net) -> None:
    pause = 0.6
    with net.new_locks(Timeouts(connect=SECONDS, query=SECONDS / 2, socket=SECONDS)) as locks:
        net.proxy.lose(Lose.REPLY, GRANT)
        renewal = net.proxy.lose(Lose.NOTHING, RENEW, hook=lambda: time.sleep(pause))
        lease = locks.lease("report", ttl=3 * SECONDS, renew=False)
        assert lease.acquire()
        assert renewal.done.wait(SECONDS)
        assert lease.remaining <= lease.ttl - lease.margin - pause


def test_a_settled_grant_whose_term_is_over_by_then_is_not_held(net: Net) -> None:
    """The renewal that proves it is good, and told so late that others may have the name."""
    net.proxy.lose(Lose.REPLY, GRANT)
    late = net.proxy.lose(Lose.NOTHING, RENEW, hook=lambda: setattr(net.proxy, "delay", 0.6 * TTL))
    back = net.proxy.lose(
        Lose.NOTHING, GIVE_BACK[net.db.kind], hook=lambda: setattr(net.proxy, "delay", 0.0)
    )
    lease = net.locks.lease("report", ttl=TTL / 2, renew=False)
    assert lease.acquire()
    assert late.done.wait(SECONDS)
    assert back.done.wait(SECONDS)
    assert lease.held
    assert lease.fence > 1


def test_a_request_that_is_lost_is_repeated(net: Net) -> None:
    lost = net.proxy.lose(Lose.REQUEST, GRANT)
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire()
    assert lost.done.wait(SECONDS)
    assert lease.fence == 1
    assert [state.fence for state in net.direct.list()] == [1]


def test_a_request_that_arrives_after_it_was_looked_for_comes_to_nothing(net: Net) -> None:
    """Its session was ended before the token was looked for: "not there" is the truth then."""
    late = net.proxy.lose(Lose.TIMELINESS, GRANT)
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire(blocking=False)
    assert lease.fence == 1
    lease.release()
    late.deliver()
    assert net.direct.list() == []
    assert net.direct.show("report").fence == 1


def test_a_request_that_cannot_be_stopped_is_the_same_hold(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_nothing(net, monkeypatch)
    late = net.proxy.lose(Lose.TIMELINESS, GRANT)
    # The repetition waits in the proxy until the server has run the first one.
    net.proxy.lose(Lose.NOTHING, GRANT, hook=late.deliver)
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire(blocking=False)
    assert lease.fence == 1
    assert [state.fence for state in net.direct.list()] == [1]
    lease.release()
    assert net.direct.list() == []


@pytest.mark.parametrize("can_end", [True, False], ids=["can be ended", "cannot be ended"])
def test_a_lost_reply_does_not_shorten_the_term_of_a_later_grant(
    net: Net, monkeypatch: pytest.MonkeyPatch, threads: Threads, can_end: bool
) -> None:
    """Which begins when it is granted, not before the wait; else it would be given back at once."""
    if not can_end:
        end_nothing(net, monkeypatch)
    holder, lease = (
        net.direct.lease("report", ttl=60),
        net.locks.lease("report", ttl=TTL, renew=False),
    )
    assert holder.acquire()
    lost = net.proxy.lose(Lose.REPLY, GRANT)
    waiting = threads.start(lease.acquire, timeout=SECONDS)
    assert lost.done.wait(SECONDS)
    time.sleep(TTL)
    before = net.proxy.count(GIVE_BACK[net.db.kind])
    holder.release()
    assert waiting.result(SECONDS)
    assert net.direct.show("report").fence == 2
    assert net.proxy.count(GIVE_BACK[net.db.kind]) == before


def test_a_refused_try_whose_reply_is_lost_is_refused(net: Net) -> None:
    other = net.direct.lease("report", ttl=60)
    assert other.acquire()
    net.proxy.lose(Lose.REPLY, GRANT)
    assert not net.locks.lease("report", ttl=60).acquire(blocking=False)
    other.check()
    other.release()


def test_an_outcome_that_cannot_be_found_out_is_unknown(net: Net) -> None:
    net.proxy.lose(Lose.REPLY, GRANT, hook=net.proxy.refuse)
    ran = False
    with net.new_locks(QUICK) as locks:
        lease = locks.lease("report", ttl=60)
        with pytest.raises(OutcomeUnknown, match="nothing was started") as caught, lease:
            ran = True
        assert not ran
        assert not lease.held
    assert caught.value.name == "report"
    # It was granted, as it happens: the word is "unknown", neither yes nor no.
    assert net.direct.show("report").held


def test_a_release_whose_reply_is_lost_touches_no_later_hold(net: Net) -> None:
    later = net.direct.lease("report", ttl=60)
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire()
    lost = net.proxy.lose(
        Lose.REPLY, RELEASE, hook=lambda: eventually(lambda: later.acquire(blocking=False))
    )
    lease.release()
    assert lost.done.wait(SECONDS)
    assert not lease.held
    state = net.direct.show("report")
    assert (state.fence, state.held) == (2, True)
    later.check()
    later.release()


def test_a_release_that_never_arrived_is_repeated(net: Net) -> None:
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire()
    net.proxy.lose(Lose.REQUEST, RELEASE)
    lease.release()
    assert not net.direct.show("report").held


def test_a_release_that_cannot_be_found_out_is_unknown(net: Net) -> None:
    with net.new_locks(QUICK) as locks:
        lease = locks.lease("report", ttl=60)
        assert lease.acquire()
        net.proxy.lose(Lose.REPLY, RELEASE, hook=net.proxy.refuse)
        with pytest.raises((OutcomeUnknown, Unavailable)):
            lease.release()


def test_a_lost_release_is_unknown_if_no_new_connection_can_be_used(net: Net) -> None:
    undo: list[Callable[[], None]] = []
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire()
    refuse = partial(refuse_set_up, net.db.url, net.locks)
    net.proxy.lose(Lose.REPLY, RELEASE, hook=lambda: undo.append(refuse()))
    try:
        with pytest.raises(OutcomeUnknown, match="newer than this code"):
            lease.release()
    finally:
        undo[0]()


def test_a_lease_that_could_not_be_renewed_for_refused_set_ups_was_unreachable(net: Net) -> None:
    with net.new_locks(QUICK) as locks:
        lease = locks.lease("report", ttl=TTL)
        assert lease.acquire()
        undo = refuse_set_up(net.db.url, locks)
        try:
            locks._database.connections.clear()
            assert lease.lost.wait(SECONDS)
        finally:
            undo()
        with pytest.raises(LockLost) as lost:
            lease.check()
    assert lost.value.reason == "unreachable"


@pytest.mark.parametrize("what", ["release", "renew", "locked", "resign", "proclaim"])
def test_a_dropped_handle_goes_at_once_whatever_was_refused(
    new_database: NewDatabase, what: str
) -> None:
    db = new_database("postgresql", migrated=True)
    with Locks(db.url) as locks:
        handle: Any = locks.lease("report", ttl=60)
        if what in ("resign", "proclaim"):
            handle = locks.election("leader", ttl=60).campaign()
        else:
            handle.acquire()
        refuse_set_up(db.url, locks)
        locks._database.connections.clear()
        gone = weakref.ref(handle)
        gc.disable()
        try:
            with pytest.raises(SchemaMissing):
                getattr(handle, what)(*(["busy"] if what == "proclaim" else []))
            del handle
            assert gone() is None
        finally:
            gc.enable()


def test_a_renewal_whose_reply_is_lost_is_renewed(net: Net) -> None:
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire()
    lost = net.proxy.lose(Lose.REPLY, RENEW)
    lease.renew(ttl=600)
    assert lost.done.wait(SECONDS)
    assert lease.held
    assert lease.remaining > 500
    state = net.direct.show("report")
    assert state.remaining is not None
    assert state.remaining > 500
    lease.release()


def test_a_silent_server_is_given_up_and_the_outcome_settled(new_database: NewDatabase) -> None:
    # PyMySQL has a read timeout of its own; libpq leaves a deaf peer to the kernel.
    db = new_database("mariadb", migrated=True)
    with Proxy(db.url) as proxy, Locks(proxy.url, timeouts=QUICK) as locks:
        lost = proxy.lose(Lose.REPLY_SILENTLY, GRANT)
        lease = locks.lease("report", ttl=60)
        assert lease.acquire()
        assert lost.done.wait(SECONDS)
        assert lease.fence == 1
        lease.release()


# --- connections that die while nobody looks ---------------------------------------------------


def test_connections_that_were_ended_while_idle(net: Net) -> None:
    locks, held = net.locks, net.locks.lease("held", ttl=600)
    assert held.acquire()
    with locks.row("row"):
        pass
    calls: list[Callable[[], object]] = [
        lambda: locks.lease("a").acquire(blocking=False),
        lambda: locked(locks, "row"),
        lambda: locked(locks, "new row"),
        held.locked,
        lambda: locks.show("held").held,
        lambda: len(locks.list()) == 2,
        held.renew,
        held.release,
    ]
    for call in calls:
        with locks.row("row"):
            pass
        assert end_sessions(net.db) > 0
        assert call() in (True, None)


@pytest.mark.parametrize("make", OWN.values())
def test_a_restart_of_the_server(
    make: Callable[[], OwnServer], own_server: OwnServers, new_database: NewDatabase
) -> None:
    server = own_server(make)
    db = new_database(server.kind, migrated=True, server=server)
    with Locks(db.url) as locks:
        kept = locks.lease("kept", ttl=600)
        assert kept.acquire()
        row = locks.row("row")
        assert row.acquire()
        server.restart()
        assert locks.lease("report").acquire(blocking=False)
        assert locks.show("kept").fence == kept.fence
        kept.renew()
        kept.release()
        with pytest.raises(LockLost):
            row.release()
        assert locked(locks, "row")


@pytest.mark.parametrize("checks", [0, 1, 2])
def test_a_row_lock_ends_with_its_connection(net: Net, checks: int) -> None:
    row = net.locks.row("order")
    assert row.acquire()
    row.check()
    end_sessions(net.db)
    for action in checks * [row.check] + [row.release]:
        with pytest.raises(LockLost) as caught:
            action()
        assert caught.value.reason == "connection lost"
        assert not row.held
    with net.direct.row("order", wait=0):
        pass


# --- a database that is not there --------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["lease", "row"])
def test_an_unreachable_database_is_tried_once_when_there_is_no_wait(
    net: Net, strategy: str
) -> None:
    net.proxy.refuse()
    lock = getattr(net.locks, strategy)("report", wait=0)
    with pytest.raises(Unavailable, match="not reached"):
        lock.acquire()
    assert net.proxy.accepted == 1


def test_a_deaf_database_is_not_waited_for_for_ever(new_database: NewDatabase) -> None:
    db = new_database("mariadb", migrated=True)  # libpq leaves a deaf peer to the kernel
    with Proxy(db.url) as proxy, Locks(proxy.url, timeouts=QUICK) as locks:
        proxy.deaf = True
        with pytest.raises(Unavailable, match="not reached"):
            locks.lease("report", wait=0).acquire()
        proxy.restore()
        assert locks.lease("report", wait=0).acquire()


@pytest.mark.parametrize("strategy", ["lease", "row"])
def test_an_unreachable_database_is_given_up_within_the_patience(net: Net, strategy: str) -> None:
    net.proxy.refuse()
    with net.new_locks(QUICK) as locks:
        lock, times = getattr(locks, strategy)("report"), [time.monotonic()]
        for blocking in (False, True):  # the yardstick is one try
            before = net.proxy.accepted
            with pytest.raises(Unavailable):
                lock.acquire(blocking)
            times.append(time.monotonic())
    once, took = (later - earlier for earlier, later in pairwise(times))
    assert QUICK.socket / 2 < took < QUICK.socket + max(4, 10 * once)
    # A pause is between two tries. So their number is bounded, on a slow machine too.
    assert 1 < net.proxy.accepted - before <= 1 + QUICK.socket / PAUSE


def test_a_database_that_comes_back_in_time(net: Net) -> None:
    net.proxy.refuse()
    restored = False

    class Restorer:
        """Restores the proxy when dblock pauses between two tries to connect."""

        def __call__(self, seconds: float) -> None:
            nonlocal restored
            restored = True
            net.proxy.restore()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(net.locks._database.runtime, "sleep", Restorer())
        assert net.locks.lease("report", wait=SECONDS).acquire()
    assert restored


# --- inside a transaction of the user's --------------------------------------------------------

metadata = MetaData()
stock = Table(
    "stock", metadata, Column("id", Integer, primary_key=True), Column("left_over", Integer)
)


@pytest.fixture
def engine(net: Net) -> Iterator[Engine]:
    engine = net.engine()
    metadata.create_all(engine)
    yield engine
    engine.dispose()


def usable(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.scalar(text("SELECT 1")) == 1)


def test_a_row_lock_in_a_transaction_that_breaks(net: Net, engine: Engine) -> None:
    with new_session(engine) as session:
        session.execute(text("SELECT 1"))
        net.proxy.cut()
        with pytest.raises(Unavailable, match="broke"):
            net.locks.row("order", on=session).acquire()
    assert usable(engine)
    with new_session(engine) as session, net.locks.row("order", wait=0, on=session):
        pass


def test_a_guard_in_a_transaction_that_breaks(net: Net, engine: Engine) -> None:
    with net.locks.lease("report") as lease:
        with new_session(engine) as session:
            session.execute(text("SELECT 1"))
            net.proxy.cut()
            with pytest.raises(Unavailable, match="broke"), lease.guard(session):
                pytest.fail("the guard's body was run")
        assert usable(engine)
        with new_session(engine) as session, lease.guard(session):
            pass


def test_a_counter_in_a_transaction_that_breaks(net: Net, engine: Engine) -> None:
    counter = net.locks.counter(stock.c.left_over, key=stock.c.id)
    with engine.begin() as connection:
        connection.execute(stock.insert().values(id=1, left_over=5))
    with new_session(engine) as session:
        session.execute(text("SELECT 1"))
        net.proxy.cut()
        with pytest.raises(Unavailable, match="broke"):
            counter.take(session, 1)
    assert usable(engine)
    with new_session(engine) as session:
        assert counter.take(session, 1)
        session.commit()
        assert counter.value(session, 1) == 4


@pytest.mark.parametrize("net", ["postgresql"], indirect=True)
def test_a_connection_that_breaks_while_a_savepoint_is_undone(net: Net, threads: Threads) -> None:
    """The statement before was canceled. Found by a soak, which saw SQLAlchemy's own error."""
    engine = net.engine()
    with net.direct.row("report"), engine.connect() as connection:
        session = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        row = net.locks.row("report", wait=SECONDS, on=connection)
        trying = threads.attempt(row.acquire)
        waits = f"SELECT FROM pg_stat_activity WHERE pid = {session} AND wait_event_type = 'Lock'"
        eventually(lambda: execute(net.db.url, waits) != [])
        lost = net.proxy.lose(Lose.REQUEST, b"ROLLBACK TO SAVEPOINT dblock")
        execute(net.db.url, f"SELECT pg_cancel_backend({session})")
        with pytest.raises(Unavailable, match="connection broke, and with it the transaction"):
            trying.result(SECONDS)
        assert lost.done.wait(SECONDS)
    engine.dispose()
