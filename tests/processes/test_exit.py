"""A process that gives its locks back as its interpreter ends: it does end, whatever its threads
were at. The daemon threads stop there wherever they are, also within a lock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from dblock import Locks
from tests.lending import Database
from tests.support import SECONDS

# How often a thread is stopped in the middle of something by chance.
TIMES = 4

BEFORE = """
import sys
from dblock import Locks
from dblock.io.process_lock import lock

locks = Locks(sys.argv[1])
lease = locks.lease(sys.argv[2], ttl=600)
row = locks.row(sys.argv[2] + " row")


def hold():
    with lease:
        yield


class Held:
    def __init__(self):
        lease.acquire()

    def __del__(self):
        lease.release()


class Row:
    def __init__(self):
        row.acquire()

    def __del__(self):
        row.release()


class Later:
    name = sys.argv[2]

    def __del__(self):
        with locks.lease(self.name, ttl=600, wait=0):
            pass

"""

# Its globals are its own: it would keep those of the program from being cleared.
BUSY = """
exec('''
import threading

def work():
    while True:
        with lock:
            for _ in range(10):
                pass

threading.Thread(target=work, daemon=True).start()
''', {"lock": lock})
"""

WAYS = {
    "a generator": "held = hold(); next(held)",
    "a finalizer": "held = Held()",
    "a row lock": "held = Row()",
    "an acquire": "held = Later()",
}


@pytest.fixture(params=WAYS)
def program(request: pytest.FixtureRequest) -> str:
    return f"{BEFORE}\n{WAYS[request.param]}\n"


@pytest.fixture
def others(db: Database) -> Iterator[Locks]:
    with Locks(db.url) as made:
        yield made


def all_end(programs: list[str], db: Database) -> None:
    """Run programs side by side until they end."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, db.url, f"name {number}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, program in enumerate(programs)
    ]
    try:
        said = [process.communicate(timeout=SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), said


def test_a_process_ends_that_gives_back_at_its_end(program: str, db: Database) -> None:
    """The keeper's timer begins with the grant, and is somewhere."""
    all_end([program] * TIMES, db)


def test_a_process_ends_whose_daemon_thread_is_stopped_within_the_lock(
    program: str, db: Database, others: Locks
) -> None:
    all_end([program + BUSY] * 3, db)
    if db.kind == "sqlite":  # other drivers may not be able to connect any more
        assert not others.list()
