"""Many connect at once, and connecting is slow, hangs, or is refused: own errors, in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from dblock import Locks, Timeouts, Unavailable
from tests.conftest import SERVERS, new_name
from tests.faults.conftest import Net
from tests.faults.proxy import Lose
from tests.faults.test_timeouts import BLOCK, blocking
from tests.lending import Database, Lender
from tests.servers import FAMILY, execute
from tests.support import LONG, SECONDS, Threads, eventually
from tests.worlds.world import World

# More than a pool of SQLAlchemy's has connections.
MANY = 24
PATIENT = Timeouts(connect=4 * SECONDS, query=LONG, socket=4 * SECONDS)


def rows(locks: Locks, threads: Threads, number: int) -> list[threading.Event]:
    """Let so many threads take and give back a row lock each."""
    done = [threading.Event() for _ in range(number)]

    def use(name: str, over: threading.Event) -> None:
        with locks.row(name, wait=SECONDS):
            over.set()

    for name, over in enumerate(done):
        threads.start(use, f"order:{name}", over)
    return done


def test_nobody_waits_for_others_to_connect(net: Net, threads: Threads) -> None:
    with net.new_locks(PATIENT) as locks:
        net.proxy.passing.clear()
        done = rows(locks, threads, MANY)
        try:
            eventually(lambda: net.proxy.accepted >= MANY)
        finally:
            net.proxy.passing.set()
        for one in done:
            assert one.wait(SECONDS)


FIRST = {"postgresql": b"version()", **dict.fromkeys(FAMILY, b"@@")}


def test_a_first_connection_that_is_not_answered_holds_up_no_other(
    net: Net, threads: Threads
) -> None:
    go_on = threading.Event()
    rule = net.proxy.lose(Lose.NOTHING, FIRST[net.db.kind], hook=lambda: waited_for(go_on))
    with net.new_locks(PATIENT) as locks:
        done = rows(locks, threads, 5)
        try:
            eventually(lambda: sum(one.is_set() for one in done) == 4)
            assert not rule.done.is_set()
        finally:
            go_on.set()
        for one in done:
            assert one.wait(SECONDS)


def waited_for(event: threading.Event) -> None:
    assert event.wait(SECONDS)


def test_many_give_up_as_soon_as_one_alone(net: Net, threads: Threads) -> None:
    """By the yardstick of the one: nobody's wait has to be over before another's begins.

    A busy machine can hold up one round, so the best of some rounds counts.
    """
    with net.new_locks(Timeouts(connect=2, query=1, socket=2)) as locks:
        net.proxy.deaf = True

        def gave_up(number: int) -> float:
            """Return how long it took until so many have given up."""
            start = time.monotonic()
            trying = [
                threads.attempt(locks.row(f"order:{number}", wait=0.5).acquire)
                for number in range(number)
            ]
            for one in trying:
                with pytest.raises(Unavailable):
                    one.result(SECONDS)
            return time.monotonic() - start

        assert any(gave_up(MANY) < 3 * gave_up(1) for _ in range(5))


# --- as many connections as the role may have ----------------------------------------------------

LIMIT = 3
ROWS = LIMIT - 1
SESSIONS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE usename",
    **dict.fromkeys(FAMILY, "SELECT count(*) FROM information_schema.processlist WHERE user"),
}


@pytest.fixture(params=SERVERS)
def limited(request: pytest.FixtureRequest, lender: Lender) -> Iterator[tuple[Database, str]]:
    """A database, and its URL for a role that may have few connections."""
    name = new_name()[:30]
    with lender.lend(request.param) as db:
        if db.kind == "postgresql":
            execute(
                db.url,
                f"CREATE ROLE {name} LOGIN CONNECTION LIMIT {LIMIT}",
                f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}",
            )
            gone = [f"DROP OWNED BY {name}", f"DROP ROLE {name}"]
        else:
            execute(
                db.url,
                f"CREATE USER {name} WITH MAX_USER_CONNECTIONS {LIMIT}",
                f"GRANT ALL ON {make_url(db.url).database}.* TO {name}",
            )
            gone = [f"DROP USER {name}"]
        yield db, make_url(db.url).set(username=name).render_as_string(hide_password=False)
        execute(db.url, *gone)


def test_at_the_limit_of_a_role(
    limited: tuple[Database, str], world: World, threads: Threads
) -> None:
    """As many as it allows have their rows, who waits gets one of theirs, others are told.

    All but one, which is for statements that hold nothing.
    """
    db, url = limited
    holding, go_on = threading.Semaphore(0), threading.Event()
    outcomes: list[BaseException | None] = []

    def hold(name: str, wait: float) -> None:
        try:
            with locks.row(name, wait=wait):
                holding.release()
                waited_for(go_on)
        except BaseException as error:
            outcomes.append(error)
        else:
            outcomes.append(None)

    timeouts = Timeouts(connect=SECONDS, query=LONG, socket=SECONDS)
    with world.locks(url, timeouts=timeouts) as locks, Locks(db.url) as others:
        # What looks leave behind is used by row locks too.
        role = make_url(url).username
        with blocking(db.url, BLOCK[db.kind]):
            looks = [threads.start(locks.show, "order:0") for _ in range(LIMIT)]
            eventually(lambda: execute(db.url, f"{SESSIONS[db.kind]} = '{role}'") == [(LIMIT,)])
        for look in looks:
            look.result(SECONDS)
        for number in range(ROWS):
            threads.start(hold, f"order:{number}", SECONDS)
            assert holding.acquire(timeout=SECONDS)
        for number in range(ROWS, MANY):
            threads.start(hold, f"order:{number}", 0.5)
        eventually(lambda: len(outcomes) == MANY - ROWS)
        assert all(type(error) is Unavailable for error in outcomes)
        assert not others.row("order:0").acquire(blocking=False)
        later = threads.start(hold, "later", SECONDS)
        go_on.set()
        later.result(SECONDS)
        threads.join()
    assert outcomes[MANY - ROWS :] == [None] * (ROWS + 1)


def test_row_locks_leave_leases_the_connection_that_renews_them(
    limited: tuple[Database, str], world: World
) -> None:
    with (
        world.locks(limited[1]) as locks,
        locks.lease("report", ttl=LONG) as lease,
        locks.row("order:0"),
        locks.row("order:1"),
    ):
        with pytest.raises(Unavailable):
            locks.row("order:2", wait=0.1).acquire()
        lease.renew()


def test_who_waits_keeps_no_connection_that_a_release_needs(
    limited: tuple[Database, str], world: World, threads: Threads
) -> None:
    """Those who wait in the server keep one each, and there are no more of them."""
    db, url = limited
    name = make_url(url).username
    sessions = f"{SESSIONS[db.kind]} = '{name}'"

    def use(name: str) -> None:
        with locks.lease(name, wait=SECONDS):
            pass

    with world.locks(url, timeouts=Timeouts(connect=2, query=1, socket=2)) as locks:
        held = [locks.lease(f"order:{number}", ttl=LONG, renew=False) for number in range(LIMIT)]
        for lease in held:
            assert lease.acquire()
        for number in range(LIMIT):
            threads.start(use, f"order:{number}")
        if db.kind in FAMILY:
            eventually(lambda: execute(db.url, sessions) == [(LIMIT,)])
        for lease in held:
            lease.release()
        threads.join()
