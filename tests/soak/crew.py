"""The worker processes: each in a place of its own, with a network of its own, and replaced."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import Self

from tests.faults.conftest import GRANT, RELEASE, RENEW
from tests.faults.proxy import Proxy

from .history import process_name
from .plan import Plan
from .worker import work

ANYTHING = GRANT + RENEW + RELEASE + b"COMMIT"  # a request that every rule waits for
KEPT = 100  # requests that a proxy remembers
JOIN_SECONDS = 20.0  # for what workers still wait for in the end; who is not done then is killed


class Place:
    """One worker's place: its network, and whoever works there now."""

    def __init__(self, number: int, plan: Plan) -> None:
        self.number = number
        self._plan = replace(plan, place=number)
        self._proxy: Proxy | None = None
        if plan.proxied:
            self._proxy = Proxy(plan.url)
            self._plan = replace(self._plan, url=self._proxy.url)
        self._lives = itertools.count(1)
        self._process: ForkServerProcess | None = None
        self._lock = threading.Lock()

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None, "this profile has no proxies"
        return self._proxy

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def fill(self) -> None:
        """Start a worker, if the one before has gone."""
        with self._lock:
            if self.alive:
                return
            self._leave()
            name = process_name(self.number, next(self._lives))
            context = multiprocessing.get_context("forkserver")
            self._process = context.Process(target=work, args=(self._plan, name), daemon=True)
            self._process.start()

    @contextlib.contextmanager
    def emptied(self) -> Iterator[None]:
        """Kill the worker; no other one starts until the end of this."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.join()
            yield

    def signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None and self._process.is_alive():
                assert self._process.pid is not None
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process.pid, number)

    def tidy(self) -> None:
        """Forget old requests, which the proxy would remember for ever."""
        if self._proxy is not None:
            del self._proxy.requests[:-KEPT]

    def forget_rules(self) -> None:
        """Take back what the proxy was to do to requests that have not come."""
        while self.proxy.rule_for(ANYTHING):
            pass

    def end(self, seconds: float) -> None:
        """Wait for the worker; kill it if it takes too long."""
        if self._process is not None:
            self._process.join(seconds)
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            self._leave()
        if self._proxy is not None:
            self._proxy.__exit__()

    def _leave(self) -> None:
        if self._process is not None:
            self._process.join()
            self._process.close()
            self._process = None


class Crew:
    """All places."""

    def __init__(self, plan: Plan) -> None:
        multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.soak.worker"])
        self.places = [Place(number, plan) for number in range(1, plan.places + 1)]

    def fill(self) -> None:
        for place in self.places:
            place.fill()
            place.tidy()

    @contextlib.contextmanager
    def emptied(self) -> Iterator[None]:
        """Kill all workers; nobody works until the end of this."""
        with contextlib.ExitStack() as stack:
            for place in self.places:
                stack.enter_context(place.emptied())
            yield

    def __enter__(self) -> Self:
        self.fill()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for place in self.places:
            place.end(JOIN_SECONDS if error is None else 0.0)
