"""Processes that read and write are killed with SIGKILL: never is a writer beside anybody."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from dblock import LockLost, Locks, Unavailable
from tests.conftest import Database
from tests.processes.workers import SECONDS, Process, Say, Wait
from tests.support import eventually

READERS, WRITERS, KILLED, EACH = 3, 2, 5, 8
TTL = 1.0


def work(say: Say, wait: Wait, url: str, folder: Path, kind: str, seed: int) -> None:
    """Hold the name again and again, and say meanwhile in a file of its own until when."""
    chance, mine = random.Random(seed), folder / f"{kind}.{os.getpid()}"
    mine.write_text(f"{0:30.6f}")
    with Locks(url) as locks, mine.open("r+") as file:
        lease = (locks.shared if kind == "reader" else locks.lease)("report", ttl=TTL, wait=SECONDS)
        say("ready")
        wait()
        while True:
            with suppress(LockLost, Unavailable), lease:
                until(file.fileno(), time.monotonic() + lease.remaining)
                others = [] if kind == "reader" else list(folder.glob("reader.*"))
                for other in (*others, *folder.glob("writer.*")):
                    if other == mine:
                        continue
                    said, now = float(other.read_text() or 0), time.monotonic()
                    alive = Path(f"/proc/{other.suffix[1:]}").exists()
                    if alive and said > now and lease.held:
                        note(folder, "violations", f"{kind} beside {other.name}\n")
                time.sleep(chance.uniform(0, 0.02))
                until(file.fileno(), 0.0)
                note(folder, kind, ".")


def until(file: int, moment: float) -> None:
    os.pwrite(file, f"{moment:30.6f}".encode(), 0)


def note(folder: Path, file: str, what: str) -> None:
    with (folder / file).open("a") as opened:
        opened.write(what)


def test_never_a_writer_beside_anybody(db: Database, tmp_path: Path) -> None:
    for file in ("reader", "writer", "violations"):
        (tmp_path / file).touch()
    kinds = ["reader"] * READERS + ["writer"] * WRITERS
    with ExitStack() as stack:
        workers: list[tuple[str, Process]] = []

        def begin(kind: str) -> None:
            process = Process(work, db.url, tmp_path, kind, len(workers))
            workers.append((kind, stack.enter_context(process)))
            assert workers[-1][1].message() == "ready"
            workers[-1][1].go_on()

        for kind in kinds:
            begin(kind)
        for _ in range(KILLED):
            for kind in ("reader", "writer"):
                enough = (tmp_path / kind).stat().st_size + EACH
                eventually(
                    lambda kind=kind, enough=enough: (  # type: ignore[misc]
                        (tmp_path / kind).stat().st_size >= enough
                    )
                )
            kind, killed = workers.pop(0)
            killed.kill()
            begin(kind)
    assert (tmp_path / "violations").read_text() == ""
    with Locks(db.url) as locks:  # what the killed had runs out
        assert locks.lease("report", ttl=TTL, wait=SECONDS).acquire()


def read(say: Say, wait: Wait, url: str) -> None:
    with Locks(url) as locks, locks.shared("report", ttl=TTL):
        say("reads")
        wait()
        say("goes")


def test_a_reader_that_is_killed_beside_another(db: Database) -> None:
    """The other goes on. When it has gone too, the name is free within the TTL."""
    with Process(read, db.url) as killed, Process(read, db.url) as other, Locks(db.url) as locks:
        assert killed.message() == other.message() == "reads"
        killed.kill()
        assert not locks.lease("report").acquire(timeout=2 * TTL)
        other.go_on()
        assert other.message() == "goes"
        assert locks.lease("report").acquire(timeout=SECONDS)
