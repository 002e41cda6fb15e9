"""All who compete, each a client that makes locks: ``client.lock(name)``, acquire, release."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from dblock import Locks
from tests.servers import ServerMissing

from . import raw
from .bare_queue import BareQueue
from .measure import Cycle
from .site import VOLATILE, Site

#: So many slots has a semaphore that nobody has to wait for.
ENOUGH = 8


class Lock(Protocol):
    """The verbs that they share. What ``acquire`` returns is falsy only when it gave up."""

    @property
    def acquire(self) -> Callable[[], object]: ...

    @property
    def release(self) -> Callable[[], object]: ...


class Client(Protocol):
    """One user of a lock service: its connections, or its pool of them."""

    def lock(self, name: str) -> Lock: ...

    def close(self) -> None: ...


class Leases:
    """dblock's leases, made anew each time, as in ``with locks.lease(name):``."""

    def __init__(self, url: str, ttl: float) -> None:
        self._locks, self._ttl = Locks(url), ttl

    def lock(self, name: str) -> Lock:
        return self._locks.lease(name, ttl=self._ttl)

    def close(self) -> None:
        self._locks.close()


class Rows(Leases):
    """dblock's row locks, in transactions of their own."""

    def lock(self, name: str) -> Lock:
        return self._locks.row(name)


class Slots(Leases):
    """Every name is a slot of one semaphore, which has so many of them."""

    def __init__(self, url: str, ttl: float, limit: int) -> None:
        super().__init__(url, ttl)
        self._limit = limit

    def lock(self, name: str) -> Lock:
        return self._locks.semaphore(f"{self._limit} slots", self._limit, ttl=self._ttl)


class Readers(Leases):
    """Every name is one that all share."""

    def lock(self, name: str) -> Lock:
        return self._locks.shared("shared", ttl=self._ttl)


class RedisPy:
    def __init__(self, url: str, ttl: float) -> None:
        import redis

        # Its default of 5 s would end python-redis-lock's wait with an error.
        self._redis, self._ttl = redis.Redis.from_url(url, socket_timeout=None), ttl

    def lock(self, name: str) -> Lock:
        lock: Lock = self._redis.lock(name, timeout=self._ttl)
        return lock

    def close(self) -> None:
        self._redis.close()


class PythonRedisLock(RedisPy):
    def lock(self, name: str) -> Lock:
        import redis_lock

        lock: Lock = redis_lock.Lock(self._redis, name, expire=max(1, round(self._ttl)))
        return lock


class Kazoo:
    def __init__(self, url: str, ttl: float) -> None:
        from kazoo.client import KazooClient

        self._client = KazooClient(url, timeout=ttl)
        self._client.start()

    def lock(self, name: str) -> Lock:
        lock: Lock = self._client.Lock(f"/locks/{name}")
        return lock

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class Pals:
    def __init__(self, url: str) -> None:
        import pals

        self._locker = pals.Locker("benchmark", url)

    def lock(self, name: str) -> Lock:
        lock: Lock = self._locker.lock(name, acquire_timeout=600_000)  # milliseconds; never None
        return lock

    def close(self) -> None:
        self._locker.engine.dispose()


class SqlalchemyDlock:
    """A connection of the engine's for each hold, which is how its documentation has it."""

    def __init__(self, url: str) -> None:
        from sqlalchemy import create_engine

        self._engine = create_engine(url)

    def lock(self, name: str) -> Lock:
        from sqlalchemy_dlock import create_sadlock

        connection: Any = None
        held: Any = None

        def acquire() -> bool:
            nonlocal connection, held
            connection = self._engine.connect()
            held = create_sadlock(connection, name)
            return bool(held.acquire())

        def release() -> None:
            held.release()
            connection.close()

        return raw.RawLock(acquire, release)

    def close(self) -> None:
        self._engine.dispose()


class DjangoPglock:
    """Django keeps a connection for each thread and alias: an alias for each client."""

    _number = count()

    def __init__(self, url: str) -> None:
        import django
        from django.conf import settings
        from django.db import connections
        from sqlalchemy import make_url

        if not settings.configured:
            settings.configure(INSTALLED_APPS=["pgactivity", "pglock"], DATABASES={})
            django.setup()
        parsed = make_url(url)
        self._alias = f"benchmark{next(self._number)}"
        given = {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": parsed.host,
            "PORT": parsed.port,
            "USER": parsed.username,
            "NAME": parsed.database,
        }
        connections.settings[self._alias] = connections.configure_settings(
            {"default": given, self._alias: given}
        )[self._alias]

    def lock(self, name: str) -> Lock:
        import pglock

        lock: Lock = pglock.advisory(name, using=self._alias)
        return lock

    def close(self) -> None:
        from django.db import connections

        connections[self._alias].close()


@dataclass(frozen=True, slots=True)
class Contender:
    """One who competes: how it connects, given where and a dead holder's TTL in seconds."""

    name: str
    connect: Callable[[str, float], Client]
    #: The server that it needs; "" is the database that is being measured.
    server: str = ""
    #: The module that must be installed, by which package.
    module: str = ""
    package: str = ""
    #: Whether a dead holder's lock runs out; else it ends with its connection.
    expires: bool = False
    #: Whether one client serves many threads.
    shared: bool = True


LEASE, VOLATILE_LEASE, ROW = "dblock lease", "dblock lease, volatile", "dblock row lock"
SEMAPHORE, ONE_SLOT = "dblock semaphore", "dblock semaphore of one"
SHARED = "dblock shared lease"
INSERT_DELETE, STATEMENTS = "raw INSERT + DELETE", "raw, dblock's statements"
FOR_UPDATE, ADVISORY = "raw FOR UPDATE", "raw pg_advisory_lock"
USER_LOCK, BARE_QUEUE = "raw GET_LOCK", "raw queue + NOTIFY"
REDIS_PY, REDIS_PY_AOF = "redis-py", "redis-py, AOF always"
PYTHON_REDIS_LOCK, PYTHON_REDIS_LOCK_AOF = "python-redis-lock", "python-redis-lock, AOF always"
KAZOO, PALS = "kazoo", "pals"
SQLALCHEMY_DLOCK, DJANGO_PGLOCK = "sqlalchemy-dlock", "django-pglock"

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(LEASE, Leases, expires=True),
        Contender(VOLATILE_LEASE, Leases, VOLATILE, expires=True),
        Contender(ROW, Rows),
        Contender(SEMAPHORE, lambda url, ttl: Slots(url, ttl, ENOUGH), expires=True),
        Contender(SHARED, Readers, expires=True),
        Contender(ONE_SLOT, lambda url, ttl: Slots(url, ttl, 1), expires=True),
        Contender(INSERT_DELETE, lambda url, ttl: raw.InsertDelete(url), shared=False),
        Contender(STATEMENTS, lambda url, ttl: raw.SameStatements(url), shared=False),
        Contender(FOR_UPDATE, lambda url, ttl: raw.ForUpdate(url), shared=False),
        Contender(ADVISORY, lambda url, ttl: raw.Advisory(url), shared=False),
        Contender(USER_LOCK, lambda url, ttl: raw.Advisory(url), shared=False),
        Contender(BARE_QUEUE, lambda url, ttl: BareQueue(url), shared=False),
        Contender(REDIS_PY, RedisPy, "redis", "redis", "redis", True),
        Contender(REDIS_PY_AOF, RedisPy, "redis-aof", "redis", "redis", True),
        Contender(
            PYTHON_REDIS_LOCK, PythonRedisLock, "redis", "redis_lock", "python-redis-lock", True
        ),
        Contender(
            PYTHON_REDIS_LOCK_AOF,
            PythonRedisLock,
            "redis-aof",
            "redis_lock",
            "python-redis-lock",
            True,
        ),
        Contender(KAZOO, Kazoo, "zookeeper", "kazoo", "kazoo", True),
        Contender(PALS, lambda url, ttl: Pals(url), "", "pals", "pals"),
        Contender(
            SQLALCHEMY_DLOCK,
            lambda url, ttl: SqlalchemyDlock(url),
            "",
            "sqlalchemy_dlock",
            "sqlalchemy-dlock",
        ),
        Contender(DJANGO_PGLOCK, lambda url, ttl: DjangoPglock(url), "", "pglock", "django-pglock"),
    )
}
#: All who can be waited for in PostgreSQL's company: the libraries, and the limit.
LIBRARIES = (
    LEASE,
    ADVISORY,
    SQLALCHEMY_DLOCK,
    DJANGO_PGLOCK,
    PALS,
    REDIS_PY,
    REDIS_PY_AOF,
    PYTHON_REDIS_LOCK,
    PYTHON_REDIS_LOCK_AOF,
    KAZOO,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender and where it finds its server: what a worker process is told."""

    name: str
    url: str

    @property
    def contender(self) -> Contender:
        return CONTENDERS[self.name]

    def connect(self, ttl: float = 30.0) -> Client:
        return self.contender.connect(self.url, ttl)


def entries(site: Site, names: Sequence[str], database: str = "postgresql") -> list[Entry]:
    """Return those of the contenders who can take part; note the others as missing."""
    found = []
    for name in names:
        contender = CONTENDERS[name]
        if contender.module and not site.peers:
            continue
        if contender.module and importlib.util.find_spec(contender.module) is None:
            site.miss(f"{name} not measured: pip install {contender.package}, or --group bench")
            continue
        try:
            found.append(Entry(name, site.url(contender.server or database)))
        except ServerMissing as missing:
            site.miss(f"{name}: {missing}")
    return found


def take(lock: Lock) -> None:
    """Acquire, for however long that takes; giving up is an error."""
    if lock.acquire() is False:
        raise RuntimeError(f"{lock} gave up waiting")


def pair(client: Client, name: str) -> Cycle:
    """Take a lock and give it back, one that is made anew each time where it is a library's."""
    lock = client.lock(name)

    def acquire() -> None:
        nonlocal lock
        lock = client.lock(name)
        take(lock)

    return {"acquire": acquire, "release": lambda: lock.release()}
