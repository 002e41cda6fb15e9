"""Worker processes: one contender's client in each, started together, stopped or killed at will."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic, sleep
from typing import Any

#: So long a worker may be silent, in seconds.
PATIENCE = 120.0
#: From the word to start to the start itself: until then all of them have heard it.
HEAD_START = 0.05

# Forked from a process that has imported what they need and done nothing else: as good as new ones,
# and there at once.
_context = get_context("forkserver")
_context.set_forkserver_preload(
    ["benchmarks.__main__", "psycopg", "sqlalchemy.dialects.postgresql"]
)


class WorkerFailed(RuntimeError):
    """A worker raised, or says nothing any more; its traceback."""


class Channel:
    """A task's end of the line."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def meet(self, said: Any = None) -> Any:
        """Tell the one who started this where it has got to; wait for its answer."""
        self.tell(said)
        return self._connection.recv()

    def tell(self, said: Any) -> None:
        self._connection.send(("said", said))


#: What a worker does: it meets whoever started it as often as both agree, and returns its result.
Task = Callable[..., Any]


class Worker:
    """One process, which does one task after another."""

    def __init__(self) -> None:
        self._connection, theirs = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, task: Task, *args: Any) -> None:
        self._connection.send((task, args))

    def hear(self, patience: float = PATIENCE) -> Any:
        """Return what the task says next, which in the end is its result."""
        if not self._connection.poll(patience):
            raise WorkerFailed(f"a worker was silent for {patience:g} s")
        kind, said = self._connection.recv()
        if kind == "raised":
            raise WorkerFailed(said)
        return said

    def answer(self, said: Any = None) -> None:
        self._connection.send(said)

    def kill(self) -> None:
        """Kill -9: the process says goodbye to nobody."""
        self._process.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def crew(number: int) -> Iterator[list[Worker]]:
    """Start worker processes, which are killed in the end."""
    workers = [Worker() for _ in range(number)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()


def race(workers: Sequence[Worker], seconds: float, task: Task, *args: Any) -> list[Any]:
    """Let all do a task from one moment to another; return their results.

    The task is called with its channel, its number and ``args``, makes itself ready, and meets:
    the answer is when to start and when to stop, by the monotonic clock that all processes share.
    """
    for number, worker in enumerate(workers):
        worker.begin(task, number, *args)
    for worker in workers:
        worker.hear()
    start = monotonic() + HEAD_START
    for worker in workers:
        worker.answer((start, start + seconds))
    return [worker.hear() for worker in workers]


def sleep_until(moment: float) -> None:
    if (left := moment - monotonic()) > 0:
        sleep(left)


def _serve(connection: Connection) -> None:
    while True:
        try:
            task, args = connection.recv()
        except EOFError:
            return
        try:
            said = ("said", task(Channel(connection), *args))
        except Exception:
            said = ("raised", traceback.format_exc())
        connection.send(said)
