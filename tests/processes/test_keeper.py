"""The keeper and the process it is in: its fork, its end, its signals, its pauses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dblock.holding.keeper
from dblock import Locks
from tests.conftest import Database, NewDatabase
from tests.processes.test_fork_gc import in_child
from tests.support import LONG, SECONDS, eventually

ROOT = Path(__file__).parents[2]
TTL = 1.0


@contextmanager
def program(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of its own, to which every warning is an error."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(source), *arguments]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **streams) as process:  # type: ignore[call-overload]  # the streams' types
        try:
            yield process
        finally:
            process.kill()


def test_a_forked_child_keeps_its_own_and_nothing_else(db: Database) -> None:
    with Locks(db.url) as locks, Locks(db.url) as others:
        mine = locks.lease("parent", ttl=TTL)
        assert mine.acquire()
        eventually(lambda: dblock.holding.keeper.keeper._timer.running)

        def child() -> tuple[int, bool]:
            before = len(dblock.holding.keeper.keeper)
            alone = threading.active_count() == 1
            with locks.lease("child", ttl=TTL) as lease:
                shown = locks.show("child").expires_at
                eventually(lambda: locks.show("child").expires_at != shown)
                return before, alone and lease.held

        assert in_child(child) == (0, True)
        for _ in range(2):  # the parent's threads go on
            shown = others.show("parent").expires_at
            eventually(lambda: others.show("parent").expires_at != shown)  # noqa: B023
        mine.release()


HOLD = """
    import sys, time
    from dblock import Locks

    locks = Locks(sys.argv[1])
    losses = []
    lease = locks.lease("report", ttl=float(sys.argv[2]), on_lost=losses.append)
    lease.acquire()
    shown = locks.show("report").expires_at
    while locks.show("report").expires_at == shown:
        time.sleep(0.01)
    print("held", flush=True)
"""


def test_a_process_ends_while_it_holds(db: Database) -> None:
    """At once, silently; its lease runs out."""
    with program(HOLD, db.url, str(TTL)) as process:
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, out, err) == (0, "held\n", "")
    with Locks(db.url) as locks:
        assert locks.lease("report", ttl=LONG, wait=SECONDS).acquire()


def test_a_lease_taken_at_the_very_end(new_database: NewDatabase) -> None:
    """When no thread can be started any more it can still be taken and given back."""
    source = """
    import atexit, sys
    from dblock import Locks

    locks = Locks(sys.argv[1])

    @atexit.register
    def at_end():
        with locks.lease("report", ttl=10):
            print("held", flush=True)
    """
    db = new_database("sqlite", migrated=True)
    with program(source, db.url) as process:
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, out, err) == (0, "held\n", "")


WATCH = """
    lease.lost.wait()
    while not losses:
        time.sleep(0.01)
    print(losses[0].reason, lease.held, lease.lost.is_set(), flush=True)
    sys.stdin.read()
"""


def test_a_process_that_was_stopped_past_the_expiry(db: Database) -> None:
    """It is told when it goes on, whoever has the lease by then, and renews nothing."""
    with (
        Locks(db.url) as locks,
        program(textwrap.dedent(HOLD) + textwrap.dedent(WATCH), db.url, str(TTL)) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        later = locks.lease("report", ttl=LONG, wait=SECONDS)
        assert later.acquire()
        process.send_signal(signal.SIGCONT)
        reason, held, lost = process.stdout.readline().split()
        assert reason in ("expired", "unreachable", "taken over")
        assert (held, lost) == ("False", "True")
        later.renew()
        later.release()


def test_the_keepers_threads_take_no_signals(new_database: NewDatabase) -> None:
    """An application may wait for its signals where it likes."""
    db = new_database("sqlite", migrated=True)
    with Locks(db.url) as locks, locks.lease("report", ttl=TTL) as lease:
        shown = locks.show("report").expires_at
        eventually(lambda: locks.show("report").expires_at != shown)
        ours = [t for t in threading.enumerate() if t.name.startswith("dblock ")]
        assert {"dblock timer", "dblock renewer"} <= {thread.name for thread in ours}
        for thread in ours:
            status = Path(f"/proc/{os.getpid()}/task/{thread.native_id}/status").read_text()
            (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk"))
            assert int(mask, 16) >> (signal.SIGTERM - 1) & 1
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert lease.held
