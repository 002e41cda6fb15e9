"""One poller for all clients that listen, however many they are.

::

    database --> Feed: polls every second --> Backlog: the last events --> a client's stream
                 while any client listens                              --> another client's stream

The polls are made in the ReaderThread's thread, so they do not hold up requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import DBLockError, Unavailable
from .backlog import KEPT, Backlog
from .changes import Snapshot, compact, event, events

if TYPE_CHECKING:
    from ...aio import AsyncLocks
    from ...lock_state import Leader, LockState, RunState
    from .changes import ServerSentEvent
    from .reading import ReaderThread

logger = logging.getLogger("dblock.serve")

#: The feed rests for at least four times as long as a poll takes. With many locks that is long.
REST = 4
#: The feed reads the last runs of jobs with every tenth poll, and when a job begins or ends.
RUNS_EVERY = 10
#: The jobs that began last, at most.
JOBS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of events. Times are in seconds."""

    #: The time between two polls.
    poll: float = 1.0
    #: After this time without an event a stream sends a comment, so that proxies keep it open.
    heartbeat: float = 15.0
    #: The time that a client has to read before its stream ends.
    patience: float = 30.0
    #: The events that are kept for clients that are behind, in bytes.
    kept: int = KEPT


class Feed:
    """Polls the locks of one database for as long as any client listens.

    It compares each poll with the one before. So a hold that is shorter than the time
    between two polls may not be seen.
    """

    def __init__(self, reader: ReaderThread, pace: Pace) -> None:
        self._reader = reader
        self.pace = pace
        self.backlog = Backlog(pace.kept)
        self._snapshot: Snapshot | None = None
        #: Why the last poll has failed.
        self._error: DBLockError | None = None
        #: The names whose leader's value cannot be read, and the fence of that leader.
        self._unreadable: dict[str, int] = {}
        #: The names whose leaders' values clients ask for, and how many clients do.
        self._elections: Counter[str] = Counter()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listening(self, elections: Iterable[str]) -> AsyncIterator[None]:
        """Poll until the block ends, and read the values of the leaders of ``elections``."""
        names = frozenset(elections)
        self._elections.update(names)
        self._listeners += 1
        if self._task is None:
            self._snapshot = self._error = None
            self._task = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._elections -= Counter(names)
            self._listeners -= 1
            if not self._listeners:
                task, self._task = self._task, None
                task.cancel()
                await asyncio.wait({task})

    @property
    def elections(self) -> frozenset[str]:
        """The names whose leaders' values clients ask for."""
        return frozenset(self._elections)

    async def present(self, elections: Iterable[str]) -> tuple[Snapshot, int]:
        """Return the newest snapshot that has these elections, and the number of its last event.

        Raises an error of dblock if the last poll has failed.
        """
        wanted = frozenset(elections)
        while True:
            if self._error is not None:
                raise self._error
            if self._snapshot is not None and wanted <= self._snapshot.elections:
                return self._snapshot, self.backlog.last
            await self.backlog.wait()

    async def after(self, number: int, patience: float) -> list[ServerSentEvent]:
        """Return the events after a number, as :meth:`.Backlog.after` does."""
        return await self.backlog.after(number, patience)

    async def _poll(self) -> None:
        polls, clock = 0, asyncio.get_running_loop().time
        async with self._reader.thread() as thread:
            while True:
                began, rest = clock(), self.pace.poll
                read = partial(
                    self._read, began, self._snapshot, self.elections, polls % RUNS_EVERY == 0
                )
                try:
                    self._found(*await thread.read(read))
                except DBLockError as error:
                    self._failed(error)
                except Exception as defect:
                    self._failed(Unavailable("the poll has met a defect"), defect)
                else:
                    polls += 1
                    rest = max(rest, REST * (clock() - began))
                await asyncio.sleep(rest)

    def _failed(self, error: DBLockError, defect: Exception | None = None) -> None:
        """Tell the clients, and log it once, until a poll succeeds. The polls go on."""
        first, self._error = self._error is None, error
        if first:
            said = "no events until the database can be read again: %s"
            logger.warning(said, error, exc_info=defect)
        self.backlog.add([event("unavailable", None, {})] if first else [])

    def _found(self, found: Snapshot, told: list[ServerSentEvent]) -> None:
        if self._error is not None:
            told = [event("available", None, {}), *told]
        self._snapshot, self._error = found, None
        self.backlog.add(told)

    # --- in the reader's thread --------------------------------------------------------------

    async def _read(
        self,
        at: float,
        before: Snapshot | None,
        elections: frozenset[str],
        with_runs: bool,
        locks: AsyncLocks,
    ) -> tuple[Snapshot, list[ServerSentEvent]]:
        """Return a new snapshot, and the events that lead to it from the snapshot before."""
        names = {state.name: state for state in await locks.list()}
        leaders = await self._leaders(elections, names, locks)
        if before is None or with_runs or _jobs(names) != _jobs(before.locks):
            last = await locks.last_runs(JOBS_MAX)
            runs: Mapping[str, RunState] = {run.name: run for run in last}
        else:
            runs = before.runs
        snapshot = Snapshot(at, names, runs, leaders, elections)
        return snapshot, [] if before is None else [*events(before, snapshot)]

    async def _leaders(
        self, elections: frozenset[str], names: Mapping[str, LockState], locks: AsyncLocks
    ) -> dict[str, Leader]:
        """Read the leaders one after the other, on one connection."""
        found = {}
        for name in sorted(elections & names.keys()):
            if names[name].held and names[name].readers is None:
                leader = await self._leader(name, names[name].fence, locks)
                if leader is not None:
                    found[name] = leader
        return found

    async def _leader(self, name: str, fence: int, locks: AsyncLocks) -> Leader | None:
        """Return a leader; None if its value cannot be read, which concerns this name only."""
        try:
            leader = await locks.election(name).leader()
            if leader is not None:
                compact(leader.value)
        except (ValueError, RecursionError) as error:
            if self._unreadable.get(name) != fence:
                self._unreadable[name] = fence
                logger.error(
                    "no events of what the leader of %r proclaims: its value cannot be read (%s)",
                    name,
                    type(error).__name__,
                )
            return None
        return leader


def _jobs(locks: Mapping[str, LockState]) -> set[tuple[Any, ...]]:
    """Return the runs that hold their names."""
    runs = [state.run for state in locks.values() if state.run is not None]
    return {(run.name, run.fence, run.ended_at) for run in runs}
