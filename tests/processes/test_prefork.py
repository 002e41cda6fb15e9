"""A pre-fork server: its master holds a lease of the application's, and its workers do not."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dblock import Locks
from tests.conftest import Database
from tests.support import SECONDS

ROOT = Path(__file__).parents[2]

APP = """
    import atexit, datetime, gc, os, sys, time
    from dblock import Locks, NotHeld

    TTL = 1.0
    locks = Locks(os.environ["APP_DATABASE"])
    lease = locks.lease("report", ttl=TTL)

    def outlive():
        # Until the lease has been renewed to more than a TTL later.
        first = locks.show("report").expires_at
        while locks.show("report").expires_at < first + datetime.timedelta(seconds=1.5 * TTL):
            time.sleep(0.05)

    def not_mine(says):
        assert not lease.held
        for use in (lease.check, lease.renew, lease.release):
            try:
                use()
            except NotHeld as error:
                assert says in str(error), error
            else:
                raise AssertionError("it was the worker's")

    def work(how, says):
        global lease
        not_mine(says)
        assert not lease.acquire(blocking=False)  # it is another's, as any other process's is
        with locks.lease(f"lease of {how}", ttl=TTL) as own:
            outlive()
            own.check()
        if how == "collect":
            del lease
            gc.collect()
        if how == "atexit":
            atexit.register(not_mine, says)
        if how == "exit":
            sys.exit(0)
"""

MASTER = """
    import multiprocessing, os, sys
    import app

    def fork(*arguments):
        child = os.fork()
        if child == 0:
            app.work(*arguments)
            sys.exit(0)
        return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def start(context, *arguments):
        process = context.Process(target=app.work, args=arguments)
        process.start()
        def end():
            process.join()
            return process.exitcode
        return end

    def main(method, says, rows):
        assert app.lease.acquire()
        before = app.lease.fence, app.lease.token
        row = app.locks.row("row")
        if rows == "True":
            assert row.acquire()
        workers = [
            fork(how, says) if method == "os.fork"
            else start(multiprocessing.get_context(method), how, says)
            for how in ("return", "exit", "atexit", "collect")
        ]
        assert [end() for end in workers] == [0] * 4
        app.outlive()
        app.lease.check()
        assert (app.lease.fence, app.lease.token) == before
        if rows == "True":
            row.check()
            row.release()
        app.lease.release()
        print("done", flush=True)

    if __name__ == "__main__":
        main(*sys.argv[1:])
"""


# What a fork inherits is the driver's; how Python makes a process is not.
@pytest.mark.parametrize(
    ("db", "method"),
    [
        ("postgresql", "os.fork"),
        ("mariadb", "os.fork"),
        ("mysql", "os.fork"),
        ("sqlite", "os.fork"),
        ("postgresql", "fork"),
        ("mariadb", "spawn"),
    ],
    indirect=["db"],
)
def test_workers_of_a_master_that_holds(db: Database, method: str, tmp_path: Path) -> None:
    for name, source in {"app.py": APP, "master.py": MASTER}.items():
        (tmp_path / name).write_text(textwrap.dedent(source))
    says = "not held" if method == "spawn" else "held by the parent process (pid "
    rows = str(db.kind != "sqlite")  # there a row lock keeps all others out
    quiet = ["-W", "error", "-W", "ignore:.*multi-threaded:DeprecationWarning"]  # of fork itself
    done = subprocess.run(
        [sys.executable, *quiet, "master.py", method, says, rows],
        cwd=tmp_path,
        env={**os.environ, "APP_DATABASE": db.url, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    with Locks(db.url) as locks:
        assert locks.list() == []


# --- the end of an interpreter -----------------------------------------------------------------

BEGIN = """
    import atexit, sys, threading, time
    from dblock import Locks

    locks = Locks(sys.argv[1])
    lease = locks.lease("report", ttl=600)
    inside = threading.Event()
"""
# What it does, and whether the lease is given back then or left to run out.
ENDS = {
    "sys.exit in the section": (
        """
        with lease:
            sys.exit(0)
        """,
        True,
    ),
    "at exit": (
        """
        def at_end():
            lease.check()
            lease.renew()
            lease.release()

        atexit.register(at_end)
        lease.acquire()
        """,
        True,
    ),
    "a thread that outlives the main one": (
        """
        def hold():
            with lease:
                inside.set()
                threading.main_thread().join()

        threading.Thread(target=hold).start()
        inside.wait()
        """,
        True,
    ),
    "a daemon thread in the section": (
        """
        def hold():
            with lease:
                inside.set()
                time.sleep(600)

        threading.Thread(target=hold, daemon=True).start()
        inside.wait()
        """,
        False,
    ),
    "a daemon thread that waits": (
        """
        def attempt(_):
            inside.set()

        from dblock import RetryPolicy
        lease.acquire()
        another = locks.lease("report", ttl=600, retry=RetryPolicy(before_sleep=attempt))
        threading.Thread(target=another.acquire, daemon=True).start()
        inside.wait()
        """,
        False,
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_an_interpreter_ends(db: Database, how: str) -> None:
    """At once and silently, whatever it holds."""
    source, given_back = ENDS[how]
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        textwrap.dedent(BEGIN) + textwrap.dedent(source),
    ]
    done = subprocess.run(
        [*command, db.url], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Locks(db.url) as locks:
        assert locks.show("report").held is not given_back
