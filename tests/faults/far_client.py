"""A client of dblock in a process of its own, which is told over its standard input what to do.

Run by :class:`FarClient` at the client's end of a network. Each request is done in a thread of its
own, so that a lease can be asked while one of its statements is under way.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dblock import DBLockError, Lease, Locks, RowLock, Timeouts
from dblock.system import clock
from tests.servers.network import Network
from tests.support import SECONDS

ROOT = Path(__file__).parents[2]
GLANCE = 0.002


@dataclass(frozen=True, slots=True)
class Answer:
    """What was told, the seconds it took, and when; all processes of a machine have one clock."""

    told: str
    seconds: float
    at: float


class FarClient:
    """The test's hold of that process."""

    def __init__(self, network: Network, url: str, timeouts: Timeouts) -> None:
        layers = [timeouts.connect, timeouts.query, timeouts.socket]
        here = [sys.executable, "-m", __name__, url, json.dumps(layers), str(network.directory)]
        self._log = (network.directory / "client.log").open("ab")
        self._process = subprocess.Popen(
            [*network.client.run(), *here],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._numbers = itertools.count()
        self._pending: dict[int, Future[Answer]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, do: str, name: str, **arguments: object) -> Future[Answer]:
        """Let it do something with the lock of that name, and do not wait."""
        number = next(self._numbers)
        self._pending[number] = Future()
        assert self._process.stdin is not None
        request = {"number": number, "do": do, "name": name, "arguments": arguments}
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        return self._pending[number]

    def do(self, do: str, name: str, **arguments: object) -> Answer:
        return self.start(do, name, **arguments).result(SECONDS)

    def kill(self) -> None:
        self._process.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, *answer = json.loads(line)
            self._pending[number].set_result(Answer(*answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Client:
    """The process itself."""

    def __init__(self, url: str, timeouts: Timeouts) -> None:
        self._locks = Locks(url, timeouts=timeouts)
        self._leases: dict[str, Lease] = {}
        self._rows: dict[str, RowLock] = {}
        self._writing = threading.Lock()

    def answer(self, number: int, do: str, name: str, arguments: dict[str, Any]) -> None:
        method: Callable[..., str] = getattr(self, do)
        start = clock.now()
        try:
            told = method(name, **arguments)
        except DBLockError as error:
            told = next(
                kind.__name__ for kind in type(error).__mro__ if DBLockError in kind.__bases__
            )
        now = clock.now()
        with self._writing:
            print(json.dumps([number, told, now - start, now]), flush=True)

    def acquire(self, name: str, ttl: float, wait: float | None = 0) -> str:
        self._leases[name] = lease = self._locks.lease(name, ttl=ttl, wait=wait)
        return "acquired" if lease.acquire() else "refused"

    def renew(self, name: str) -> str:
        self._leases[name].renew()
        return "renewed"

    def release(self, name: str) -> str:
        self._leases[name].release()
        return "released"

    def check(self, name: str) -> str:
        self._leases[name].check()
        return "held"

    def lock_row(self, name: str, wait: float | None = None) -> str:
        self._rows[name] = self._locks.row(name, wait=wait)
        return "acquired" if self._rows[name].acquire() else "refused"

    def told_of_loss(self, name: str, by: str) -> str:
        """Wait until the holder is told, in one of the ways there are."""
        lease = self._leases[name]
        while by == "held" and lease.held:
            time.sleep(GLANCE)
        while by == "remaining" and lease.remaining > 0:
            time.sleep(GLANCE)
        while by == "check":
            lease.check()  # raises
            time.sleep(GLANCE)
        if by == "lost":
            assert lease.lost.wait(SECONDS)
        return "LockLost"


def main() -> None:
    url, layers, _ = sys.argv[1:]
    client = Client(url, Timeouts(*json.loads(layers)))
    for line in sys.stdin:
        threading.Thread(target=client.answer, kwargs=json.loads(line), daemon=True).start()


if __name__ == "__main__":
    main()
