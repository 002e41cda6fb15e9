"""What a first waiter that is stopped, or killed, costs the second (promise 10).

By the yardstick of what a statement takes here at the worst meanwhile.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dblock.protocol.term import FIRST_TERM
from dblock.protocol.timing import Timing
from tests.conftest import KINDS, NewDatabase
from tests.processes.workers import Process, queue_up
from tests.servers import PgBouncer, execute
from tests.support import Threads, eventually
from tests.waiting.conftest import LISTENERS, NAME, Queue, lease

SEEN = "SELECT count(*) FROM dblock_waiter"
FENCE = "SELECT fence FROM dblock_lock"
# The steps from one holder to the next, each of which may take as long as the worst statement.
STEPS = 10
# What is between two looks, at the most, of one whose turn has come.
LOOK = 0.5


@pytest.fixture(params=["pgbouncer", *KINDS])
def waited(request: pytest.FixtureRequest, new_database: NewDatabase) -> Iterator[Queue]:
    with ExitStack() as stack:
        yield Queue(new_database(request.param, migrated=True), stack, {})


def listens(queue: Queue) -> bool:
    """Whether its waiters are told, by a session that the server knows to be there or not."""
    return queue.db.kind == "postgresql" and not isinstance(queue.db.server, PgBouncer)


def late(
    queue: Queue, threads: Threads, end: Callable[[Process, Callable[[], None]], None]
) -> float:
    """Let two wait, the first of which comes to an end about the release, and return after how many
    seconds the second has the name, less what the machine took."""
    holder, second = lease(queue.locks()), lease(queue.locks())
    assert holder.acquire()
    with Process(queue_up, queue.db.url, NAME) as first:
        eventually(lambda: execute(queue.db.url, SEEN) == [(1,)])
        waiting = threads.start(second.acquire)
        eventually(lambda: execute(queue.db.url, SEEN) == [(2,)])
        released, took = list[float](), list[float]()

        def release() -> None:
            released.append(time.monotonic())
            holder.release()
            took.append(time.monotonic() - released[0])

        end(first, release)
        while not waiting.done():
            began = time.monotonic()
            execute(queue.db.url, FENCE)
            took.append(time.monotonic() - began)
        waited = time.monotonic() - released[0]
        assert waiting.result()
    return waited - STEPS * max(took)


def test_the_first_is_stopped(waited: Queue, threads: Threads) -> None:
    """On PostgreSQL it is passed the name; on MariaDB the server gives it the session's lock."""

    def stopped(first: Process, release: Callable[[], None]) -> None:
        first.send(signal.SIGSTOP)
        release()

    assert late(waited, threads, stopped) < FIRST_TERM + LOOK


def test_the_first_was_killed(waited: Queue, threads: Threads) -> None:
    """Its place costs nothing where its session tells that it is gone; elsewhere a moment."""

    def killed(first: Process, release: Callable[[], None]) -> None:
        first.kill()
        if listens(waited):
            eventually(lambda: len(execute(waited.db.url, LISTENERS)) == 1)
        release()

    allowed = 0.0 if listens(waited) else Timing().grace + LOOK
    assert late(waited, threads, killed) < allowed + LOOK


@pytest.mark.parametrize("killed_first", [True, False], ids=["killed", "released"])
def test_the_first_is_killed_at_that_moment(
    waited: Queue, threads: Threads, killed_first: bool
) -> None:
    """On PostgreSQL the release may not know yet, and pass it the name for its first term."""

    def killed(first: Process, release: Callable[[], None]) -> None:
        if killed_first:
            first.send(signal.SIGKILL)
            release()
        else:
            first.send(signal.SIGSTOP)  # else it may renew what it is passed, for a whole TTL
            release()
            first.send(signal.SIGKILL)

    allowed = FIRST_TERM if listens(waited) else Timing().grace + LOOK
    assert late(waited, threads, killed) < allowed + LOOK
