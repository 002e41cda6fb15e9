"""A lock at a majority of three servers, beside a lease in one database: with all members there,
with one frozen, and with one stopped."""

from __future__ import annotations

import importlib.util
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Protocol

from dblock import Locks, Quorum, Timeouts
from dblock.schema import upgrade
from tests.servers import PostgreSQL, ServerMissing

from .figures import Effort, Figure, Sheet, Target
from .peers import Client, Lock
from .raw import RawLock
from .servers import Redis
from .site import Site

GROUP = "majority"
UP, FROZEN, STOPPED = "all members up", "one member frozen", "one member stopped"

LOCKS = "dblock Locks, PostgreSQL"
QUORUM, FILES = "dblock Quorum, 3 PostgreSQL", "dblock Quorum, 3 SQLite files"
REDLOCK, REDLOCK_AOF = "pottery Redlock, 3 Redis", "pottery Redlock, 3 Redis, AOF always"

#: The name that is taken; for how long it could be held, in seconds; and the longest wait for it.
NAME, TTL, WAIT = "uncontended", 30.0, 3.0
#: A member that is silent costs the quorum ``connect`` once.
TIMES = Timeouts(connect=1.0, query=2.0, socket=4.0)
#: Seconds that the Redlock client gives one server: the algorithm's description has 5 to 50 ms.
REDIS_TIMEOUT = 0.05
#: A round is so many turns of each contender.
SLICES = 10

TARGETS = (
    *(Target(GROUP, scenario, "p50", QUORUM, 3.0, LOCKS) for scenario in (UP, FROZEN, STOPPED)),
    # In ms: not one wait for the silent member; a new client, which reads the members' records,
    # waits once, and has a fifth of that for the rest.
    Target(GROUP, FROZEN, "first pair", QUORUM, 1000 * TIMES.connect),
    Target(GROUP, FROZEN, "new client", QUORUM, 1200 * TIMES.connect),
)


class Member(Protocol):
    """A server of three, which can be frozen, thawed and stopped."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...


class File:
    """A file of SQLite's. It is frozen while a writer keeps its lock, and stopped when its folder
    is not there: a disk that was unmounted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "member"
        self._folder.mkdir()
        self.path = self._folder / "locks.db"
        self._writer: sqlite3.Connection | None = None

    def pause(self) -> None:
        self._writer = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        self._writer.execute("BEGIN EXCLUSIVE")

    def resume(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def stop(self) -> None:
        self._folder.rename(self._folder.with_name("unmounted"))


class Leases:
    """The leases of one database, or of a quorum."""

    def __init__(self, locks: Locks | Quorum) -> None:
        self._locks = locks

    def lock(self, name: str) -> Lock:
        return self._locks.lease(name, ttl=TTL, wait=WAIT)

    def close(self) -> None:
        self._locks.close()


class Redlock:
    """The algorithm of Redis' documentation, by the library pottery."""

    def __init__(self, urls: Sequence[str]) -> None:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        # It logs an error for each request to a member that is away.
        logging.getLogger("pottery").setLevel(logging.CRITICAL)
        self._masters = {
            redis.Redis.from_url(
                url,
                socket_timeout=REDIS_TIMEOUT,
                socket_connect_timeout=REDIS_TIMEOUT,
                retry=Retry(NoBackoff(), 0),
            )
            for url in urls
        }

    def lock(self, name: str) -> Lock:
        import pottery

        lock: Any = pottery.Redlock(key=name, masters=self._masters, auto_release_time=TTL)
        return RawLock(lambda: lock.acquire(timeout=WAIT), lock.release)

    def close(self) -> None:
        for master in self._masters:
            master.close()


@dataclass(slots=True)
class Contender:
    """A client that competes, and the one of its members that will be away."""

    name: str
    connect: Callable[[], Client]
    member: Member | None = None
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.connect()

    def close(self) -> None:
        self.client.close()

    def begin(self, scenario: str) -> None:
        """Let the scenario's fault happen to the member."""
        if self.member is None:
            return
        if scenario == FROZEN:
            self.member.pause()
        elif scenario == STOPPED:
            if isinstance(self.member, File):  # one that is open would stay so
                self.client.close()
            self.member.stop()
            if isinstance(self.member, File):
                self.client = self.connect()


@dataclass(slots=True)
class Taken:
    """The pairs of one contender: how many seconds each took, and what went wrong."""

    seconds: list[float] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def pair(self, client: Client) -> None:
        """Take the name and release it. A pair that fails counts with its time."""
        start = monotonic()
        try:
            lock = client.lock(NAME)
            if lock.acquire() is False:
                raise TimeoutError(f"not acquired within {WAIT:g} s")
            lock.release()
        except Exception as error:
            self.errors.append(error)
        self.seconds.append(monotonic() - start)

    def loop(self, client: Client, seconds: float) -> None:
        """Take and release the name for a while, once at least."""
        end = monotonic() + seconds
        self.pair(client)
        while monotonic() < end:
            self.pair(client)

    def share(self, part: float) -> float:
        """Return the time that this part of the pairs did not exceed, in us."""
        ordered = sorted(self.seconds)
        return ordered[int((len(ordered) - 1) * part)] * 1e6


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """One thread takes and releases a free name. The contenders take turns."""
    with ExitStack() as stack:
        contenders = list(_contenders(site, stack))
        for scenario in (UP, FROZEN, STOPPED):
            yield from _measure(site, scenario, contenders, effort)
            for contender in contenders:
                if scenario == FROZEN and contender.member is not None:
                    contender.member.resume()
                    Taken().loop(contender.client, effort.settle)  # until the member takes part


def _measure(
    site: Site, scenario: str, contenders: Sequence[Contender], effort: Effort
) -> Iterator[Figure]:
    sheet = Sheet(GROUP, scenario)
    for contender in contenders:
        contender.begin(scenario)
        first = Taken()
        first.pair(contender.client)
        if scenario != UP and contender.member is not None:
            sheet.add(contender.name, "first pair", "ms", first.seconds[0] * 1e3)
        with closing(contender.connect()) as client:
            first.pair(client)
        sheet.add(contender.name, "new client", "ms", first.seconds[1] * 1e3)
        _note(site, scenario, contender, first)
    for _ in range(effort.loops):
        found = [Taken() for _ in contenders]
        order = list(zip(contenders, found, strict=True))
        for _ in range(SLICES):
            for contender, taken in order:
                taken.loop(contender.client, effort.loop / SLICES)
            order.reverse()  # so that none of them always follows the same one
        for contender, taken in zip(contenders, found, strict=True):
            done = len(taken.seconds) - len(taken.errors)
            sheet.add(contender.name, "pairs", "/s", done / sum(taken.seconds))
            sheet.add(contender.name, "p50", "us", taken.share(0.5))
            sheet.add(contender.name, "p99", "us", taken.share(0.99))
            sheet.add(contender.name, "failed", "%", 100 * len(taken.errors) / len(taken.seconds))
            _note(site, scenario, contender, taken)
    return sheet.figures()


def _note(site: Site, scenario: str, contender: Contender, taken: Taken) -> None:
    """Say why pairs failed, once for each error."""
    for error in taken.errors:
        why = str(error).partition("\n")[0]
        site.miss(f"{GROUP}, {scenario}: {contender.name} failed: {type(error).__name__}: {why}")


def _contenders(site: Site, stack: ExitStack) -> Iterator[Contender]:
    """Connect the contenders that can take part; note the others as missing."""
    for name, connect in (
        (LOCKS, _one_database),
        (QUORUM, _three_servers),
        (FILES, _three_files),
        (REDLOCK, partial(_three_redis, durable=False)),
        (REDLOCK_AOF, partial(_three_redis, durable=True)),
    ):
        if name in (REDLOCK, REDLOCK_AOF):
            if not site.peers:
                continue
            if importlib.util.find_spec("pottery") is None:
                site.miss(f"{name} not measured: pip install pottery, or --group bench")
                continue
        try:
            client, member = connect(site, stack)
        except ServerMissing as missing:
            site.miss(f"{name}: {missing}")
        else:
            yield stack.enter_context(closing(Contender(name, client, member)))


#: What makes a contender's client, and the member that will be away.
Connected = tuple[Callable[[], Client], Member | None]

# The site has one server of each kind already. A majority needs two more, which end with the group.


def _one_database(site: Site, stack: ExitStack) -> Connected:
    url = site.url("postgresql")
    return lambda: Leases(Locks(url, timeouts=TIMES)), None


def _three_servers(site: Site, stack: ExitStack) -> Connected:
    servers = [stack.enter_context(PostgreSQL(durable=True)) for _ in range(2)]
    urls = [server.url for server in servers]
    for url in urls:
        upgrade(url)
    urls.append(site.database("postgresql"))
    return lambda: Leases(Quorum(urls, timeouts=TIMES)), servers[-1]


def _three_files(site: Site, stack: ExitStack) -> Connected:
    files = [File(Path(stack.enter_context(TemporaryDirectory()))) for _ in range(3)]
    urls = [f"sqlite:///{file.path}" for file in files]
    for url in urls:
        upgrade(url)
    stack.callback(files[-1].resume)
    return lambda: Leases(Quorum(urls, timeouts=TIMES)), files[-1]


def _three_redis(site: Site, stack: ExitStack, *, durable: bool) -> Connected:
    servers = [stack.enter_context(Redis(durable)) for _ in range(2)]
    urls = [*(server.url for server in servers), site.url("redis-aof" if durable else "redis")]
    return lambda: Redlock(urls), servers[-1]
