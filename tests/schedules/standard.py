"""What dblock has from the standard library to wait with, for the threads of a :class:`.Run`.

Each does what its namesake does, and whoever waits in it is known to the scheduler to wait. All of
an operation happens at once, as it does in C.
"""

from __future__ import annotations

import contextlib
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, partial
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

from dblock.holding.lease_hold import LeaseHold
from dblock.io import process_lock
from dblock.io.runtime import Runtime

from .scheduler import Run, Thread


class RLock:
    """Also for Lock: nobody in dblock takes one twice for another thread to release it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._run.current
        if self._count == 0 or self.owner is me or self._run.over:
            self.owner = me
            self._count += 1
            return True
        seconds = 0.0 if not blocking else None if timeout < 0 else timeout
        if not self._run.wait(lambda: self._count == 0, seconds):
            return False
        self.owner, self._count = me, 1
        return True

    def release(self) -> None:
        if self._run.over:
            return
        assert self.owner is self._run.current, "released by who does not have it"
        self._count -= 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def leave(self) -> int:
        """Let it go, however often it was taken."""
        count, self._count = self._count, 0
        return count

    def enter(self, count: int) -> None:
        self._run.wait(lambda: self._count == 0)
        self.owner, self._count = self._run.current, count


class Condition:
    def __init__(self, run: Run, lock: RLock | None = None) -> None:
        self._run = run
        self._lock = RLock(run) if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: deque[list[bool]] = deque()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._waiting.append(told)
        count = self._lock.leave()
        try:
            return self._run.wait(lambda: told[0], timeout)
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(told)
            if not self._run.over:
                self._lock.enter(count)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else self._run.now + timeout
        while not (result := predicate()):
            left = None if until is None else until - self._run.now
            if left is not None and left <= 0:
                return predicate()
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._waiting.popleft()[0] = True

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._run.wait(self.is_set, timeout)


class Queue:
    """A SimpleQueue."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._items: deque[Any] = deque()

    def put(self, item: object) -> None:
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._run.wait(lambda: bool(self._items), timeout if block else 0.0):
            raise Empty
        return self._items.popleft()


class StartedThread:
    """A thread that dblock starts."""

    def __init__(
        self, run: Run, *, target: Callable[[], object], name: str, daemon: bool = True
    ) -> None:
        self._run, self._target, self._name = run, target, name
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = self._run.start(self._name, self._target)

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.ended


class Poll:
    """One that is made by select.poll()."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._poll = select.poll()
        self.register = self._poll.register

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        self._run.wait(lambda: bool(self._poll.poll(0)), milliseconds / 1000)
        return self._poll.poll(0)


class RunRuntime(Runtime):
    """Of a run's threads: its time, and nothing drawn. It waits by what stands in for the rest."""

    def __init__(self, run: Run) -> None:
        self.now = lambda: run.now
        self.random = lambda: 0.0


# Nobody is sent any, and to keep them off a thread takes longer than all else that it does.
_NO_SIGNALS = {"pthread_sigmask": lambda *how: None, "valid_signals": lambda: None}

#: What dblock's modules have.
_REAL = (
    process_lock.lock,
    process_lock.settled,
    threading,
    time,
    select,
    signal,
    SimpleQueue,
)


def _stand_ins(run: Run) -> tuple[object, ...]:
    """What they have instead in a run."""

    def of(kind: Any) -> Any:
        return partial(kind, run)

    kinds = {"RLock": RLock, "Lock": RLock, "Condition": Condition, "Event": Event}
    waiting = {name: of(kind) for name, kind in kinds.items()} | {"Thread": of(StartedThread)}
    lock = RLock(run)
    return (
        lock,
        Condition(run, lock),
        SimpleNamespace(**(vars(threading) | waiting)),
        SimpleNamespace(**(vars(time) | {"sleep": run.sleep})),
        SimpleNamespace(**(vars(select) | {"poll": of(Poll)})),
        SimpleNamespace(**(vars(signal) | _NO_SIGNALS)),
        of(Queue),
    )


@cache
def _places() -> list[tuple[dict[str, Any], str, int]]:
    """Where dblock's modules have them, and which it is."""
    return [
        (vars(module), name, number)
        for path, module in list(sys.modules.items())
        if path.split(".")[0] == "dblock"
        for name, value in list(vars(module).items())
        for number, real in enumerate(_REAL)
        if value is real
    ]


@contextlib.contextmanager
def replaced(run: Run) -> Iterator[None]:
    """Let dblock's modules wait in a run, wherever they have their means from."""
    instead = _stand_ins(run)
    for module, name, number in _places():
        module[name] = instead[number]
    # The keeper goes through a set of them, whose order is otherwise that of their addresses.
    type.__setattr__(LeaseHold, "__hash__", lambda hold: 0)
    try:
        yield
    finally:
        type.__setattr__(LeaseHold, "__hash__", object.__hash__)
        for module, name, number in _places():
            module[name] = _REAL[number]
