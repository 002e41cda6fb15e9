"""One soak: a server, workers, faults; then the probes, and the history to be checked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import NullPool, create_engine

from dblock import Locks
from dblock.schema import upgrade
from tests.servers import MariaDB, OwnServer, PostgreSQL

from . import ledger
from .checker import PATIENCE, History
from .crew import Crew
from .history import PROBE, Recorder, Tail, now, read
from .nemesis import Nemesis
from .worker import STOP, TIMEOUTS, Plan, outcome

SERVERS: dict[str, Callable[[], OwnServer]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}
DATABASE = "soak"
PULSE = 0.1  # how often the dead are replaced and the history is looked at


@dataclass(frozen=True)
class Settings:
    """What to run. It goes on, past its seconds, until there are writes and all kinds of faults."""

    seconds: float = 300.0
    seed: int = 0
    guarded: bool = True
    workers: int = 6
    names: int = 3
    ttl: float = 1.0
    writes: int = 20


Watch = Callable[[float, Tail], None]


def soak(
    settings: Settings, server: OwnServer, directory: Path, watch: Watch = lambda *_: None
) -> History:
    """Run it on a server that may be broken, and leave its history in ``directory``.

    ``watch`` is told, every so often, how many seconds of it are over and what it has counted.
    """
    names = tuple(f"name-{number}" for number in range(1, settings.names + 1))
    server.create_database(DATABASE)
    url = server.url_for(DATABASE)
    upgrade(url)
    engine = create_engine(url, poolclass=NullPool, isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        ledger.create(connection, names)
    seed = f"{server.kind}/{settings.seed}"
    plan = Plan(url, directory, names, settings.ttl, seed, settings.guarded)
    with Crew(plan, settings.workers) as crew:
        disturb(settings, crew, server, directory, seed, watch)
        (directory / STOP).touch()
    probe(url, names, settings.ttl, directory)
    with engine.begin() as connection:
        left = ledger.read(connection)
    (directory / "ledger.json").write_text(json.dumps(asdict(left), indent=1) + "\n")
    return History(read(directory), left, names)


def disturb(
    settings: Settings, crew: Crew, server: OwnServer, directory: Path, seed: str, watch: Watch
) -> None:
    """Let the workers work and the faults happen, until it is enough."""
    tail, start = Tail(directory), now()
    with Nemesis(crew, server, DATABASE, settings.ttl, seed, directory) as nemesis:
        while not nemesis.errors:
            time.sleep(PULSE)
            crew.fill()
            tail.follow()
            over = now() - start
            watch(over, tail)
            if (
                over >= settings.seconds
                and tail.counts["write", "ok"] >= settings.writes
                and all(tail.faults[kind] for kind in nemesis.kinds)
            ):
                break
    if nemesis.errors:
        raise nemesis.errors[0]


def probe(url: str, names: tuple[str, ...], ttl: float, directory: Path) -> None:
    """See whether each name can be taken again: tries are counted, each a TTL after the last."""
    recorder = Recorder(directory, PROBE)
    with Locks(url, timeouts=TIMEOUTS) as locks:
        for name in names:
            for _ in range(PATIENCE + 1):
                lease = locks.lease(name, ttl=ttl, wait=0)
                operation = recorder.begin("acquire", name=name, ttl=ttl, wait=0)
                with outcome(operation, nothing_changed=True):
                    if lease.acquire():
                        at = now()
                        deadline = at + lease.remaining
                        operation.tell("ok", at, fence=lease.fence, deadline=deadline)
                        break
                    operation.tell("failed", error="NotAcquired")
                time.sleep(ttl)
    recorder.close()
