"""What a soak can be of: the servers, what happens to them, and how many do what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.clusters.galera import Galera
from tests.clusters.patroni import Patroni
from tests.servers import OWN, MariaDB, Pooled, PostgreSQL, Server, execute

from .calming import Calming
from .clustered import Fenced, Hung, Lagging
from .failing_over import FailingOver, Pair
from .file import File
from .galera import AllWriters, OneWriter
from .havoc import Havoc
from .members import Members
from .minorities import WithoutAMinority
from .nemesis import Nemesis

# How slow commits are where they are to be, in seconds.
SLOW_COMMIT = 0.06


@dataclass(frozen=True)
class Profile:
    """One kind of soak. What its workers do is in ``worker.WORKERS``, under the same name."""

    servers: dict[str, Callable[[], Server]]
    nemesis: type[Nemesis] = Nemesis
    #: Whether things happen to the workers' networks.
    proxied: bool = False
    workers: int = 6
    names: int = 1
    ttl: float = 1.0
    #: So many writes there have to be, at least.
    writes: int = 0
    #: Whether commits outlive all that happens; and whether never two servers are the primary.
    keeps_commits: bool = True
    fenced: bool = True
    prepare: Callable[[Server, str], None] = field(default=lambda server, database: None)


def slow_commits(server: Server, database: str) -> None:
    """Let each commit take its time, with all its locks."""
    settings = {"commit_delay": round(SLOW_COMMIT * 1e6), "commit_siblings": 0}
    for setting, value in settings.items():
        execute(server.url, f'ALTER DATABASE "{database}" SET {setting} = {value}')


EACH: dict[str, Callable[[], Server]] = dict(OWN)
CLUSTER = Profile({}, proxied=True, workers=4, names=2, ttl=5.0, writes=20)
PROFILES = {
    "chaos": Profile(EACH, Havoc, proxied=True, names=3, writes=20),
    "failover": Profile(
        {"postgresql": Pair}, FailingOver, proxied=True, workers=8, names=10, ttl=15.0
    ),
    "quorum": Profile(
        {
            "sqlite": lambda: Members(*(File() for _ in range(3))),
            "postgresql": lambda: Members(*(PostgreSQL() for _ in range(3))),
            "mix": lambda: Members(PostgreSQL(), MariaDB(), File()),
            "five": lambda: Members(*(PostgreSQL() for _ in range(3)), File(), File()),
        },
        WithoutAMinority,
        workers=4,
        names=2,
        ttl=3.0,
    ),
    "user-locks": Profile(EACH, workers=3, ttl=10.0),
    "queues": Profile(EACH, workers=3, names=18, ttl=10.0),
    "leaves": Profile(
        {"postgresql": lambda: PostgreSQL(durable=True)},
        Calming,
        workers=3,
        ttl=2.0,
        prepare=slow_commits,
    ),
    "fair": Profile(EACH | {"pgbouncer": Pooled}, workers=5, ttl=10.0),
    "hand-offs": Profile(EACH | {"pgbouncer": Pooled, "sqlite": File}, workers=6, names=3, ttl=3.0),
    "patroni-async": replace(
        CLUSTER,
        servers={"postgresql": lambda: Patroni("async", cuttable=True)},
        nemesis=Lagging,
        keeps_commits=False,
    ),
    "patroni-sync": replace(
        CLUSTER,
        servers={"postgresql": lambda: Patroni("sync", cuttable=True)},
        nemesis=Fenced,
    ),
    "patroni-quorum": replace(
        CLUSTER,
        servers={"postgresql": lambda: Patroni("quorum", size=3, cuttable=True)},
        nemesis=Fenced,
    ),
    "patroni-hung": replace(
        CLUSTER,
        servers={"postgresql": lambda: Patroni("async")},
        nemesis=Hung,
        keeps_commits=False,
        fenced=False,
    ),
    "galera-one": replace(CLUSTER, servers={"mariadb": lambda: Galera("one")}, nemesis=OneWriter),
    # Row locks of different nodes do not keep each other off, and prove themselves at the commit:
    # the checker is told of writes under them, and of no holds.
    "galera-all": replace(
        CLUSTER, servers={"mariadb": lambda: Galera("all")}, nemesis=AllWriters, workers=6
    ),
}
