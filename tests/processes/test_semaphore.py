"""Processes with slots of one semaphore are killed with SIGKILL: never more have one than may."""

from __future__ import annotations

import fcntl
import os
import random
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from dblock import LockLost, Locks, Unavailable
from tests.conftest import Database
from tests.processes.workers import SECONDS, Process, Say, Wait
from tests.support import eventually

LIMIT, WORKERS, KILLED, EACH = 2, 5, 6, 12
TTL = 0.6


def sit(say: Say, wait: Wait, url: str, folder: Path, seed: int) -> None:
    """Take a slot again and again, and meanwhile the seat that there is once for each."""
    chance = random.Random(seed)
    with Locks(url) as locks:
        semaphore = locks.semaphore("api", LIMIT, ttl=TTL, wait=SECONDS)
        say("ready")
        wait()
        while True:
            with suppress(LockLost, Unavailable), semaphore as slot:
                seat = os.open(folder / slot.name, os.O_RDWR | os.O_CREAT)
                try:
                    fcntl.flock(seat, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system ends it
                except BlockingIOError:
                    until = float(os.pread(seat, 100, 0) or 0)
                    if slot.held and time.monotonic() < until:
                        note(folder, "violations", f"two have {slot.name}\n")
                else:
                    until = time.monotonic() + slot.remaining
                    os.pwrite(seat, f"{until:30.6f}".encode(), 0)
                    time.sleep(chance.uniform(0, 0.02))
                    slot.check()
                    os.pwrite(seat, f"{0:30.6f}".encode(), 0)
                    note(folder, "sat", ".")
                finally:
                    os.close(seat)


def note(folder: Path, file: str, what: str) -> None:
    with (folder / file).open("a") as opened:
        opened.write(what)


def test_never_more_than_the_limit(db: Database, tmp_path: Path) -> None:
    for file in ("sat", "violations"):
        (tmp_path / file).touch()
    with ExitStack() as stack:
        begun = (
            stack.enter_context(Process(sit, db.url, tmp_path, seed))
            for seed in range(WORKERS + KILLED)
        )
        workers = [next(begun) for _ in range(WORKERS)]
        for worker in workers:
            assert worker.message() == "ready"
        for worker in workers:
            worker.go_on()
        for number in range(KILLED):
            enough = (tmp_path / "sat").stat().st_size + EACH
            eventually(lambda enough=enough: (tmp_path / "sat").stat().st_size >= enough)  # type: ignore[misc]
            workers.pop(0).kill()
            workers.append(next(begun))
            assert workers[-1].message() == "ready", number
            workers[-1].go_on()
    assert (tmp_path / "violations").read_text() == ""
    with Locks(db.url) as locks:
        kept = [locks.semaphore("api", LIMIT, ttl=TTL, wait=SECONDS) for _ in range(LIMIT)]
        for semaphore in kept:  # what the killed had runs out
            assert semaphore.acquire()
        assert {state.name for state in locks.list() if state.held} == {"api#1", "api#2"}
