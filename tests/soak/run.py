"""One soak: a server, workers, faults; then the probes, and the history to be checked."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import IsolationLevel

from dblock import Locks, Quorum
from dblock.dialects.values import text
from dblock.schema import upgrade
from tests.servers import OWN, Server, execute

from . import ledger
from .checker import PATIENCE
from .crew import Crew
from .facts import History
from .history import PROBE, YARDSTICK, Recorder, Tail, now, read
from .members import Members
from .plan import STOP, Plan
from .profiles import PROFILES
from .recorded import TIMEOUTS, acquire
from .yardstick import Yardstick

DATABASE = "soak"
# Where the end of a waiter's session tells of it: not behind a pooler, and not in a file.
SEE_DEATHS = tuple(OWN)
PULSE = 0.1  # how often the dead are replaced and the history is looked at


@dataclass(frozen=True)
class Settings:
    """What to run. It goes on, past its seconds, until there are holds, writes, deaths and all
    faults."""

    seconds: float = 300.0
    seed: int = 0
    guarded: bool = True
    workers: int = 6
    names: int = 3
    ttl: float = 1.0
    writes: int = 20
    holds: int = 0
    deaths: int = 0
    profile: str = "chaos"

    @classmethod
    def of(cls, profile: str, seconds: float, seed: int, **others: Any) -> Settings:
        """As the profile has them, where nothing else is said."""
        usual = PROFILES[profile]
        asked: dict[str, Any] = {
            name: getattr(usual, name) for name in ("workers", "names", "ttl", "writes")
        }
        return cls(seconds, seed, profile=profile, **(asked | others))


Watch = Callable[[float, Tail], None]


def soak(
    settings: Settings, server: Server, directory: Path, watch: Watch = lambda *_: None
) -> History:
    """Run it on a server that may be broken, and leave its history in ``directory``.

    ``watch`` is told, every so often, how many seconds of it are over and what it has counted.
    """
    names = tuple(f"name-{number}" for number in range(1, settings.names + 1))
    server.create_database(DATABASE)
    profile = PROFILES[settings.profile]
    profile.prepare(server, DATABASE)
    url = server.url_for(DATABASE)
    upgrade(url)
    with connected(url) as connection:
        ledger.create(connection, names)
    plan = Plan(
        settings.profile,
        url,
        directory,
        names,
        settings.ttl,
        f"{server.kind}/{settings.seed}",
        settings.guarded,
        profile.proxied,
        server.kind in SEE_DEATHS,
        places=settings.workers,
        members=server.member_urls if isinstance(server, Members) else (),
    )
    recorder = Recorder(directory, YARDSTICK)
    with Yardstick(recorder, lambda: server.url_for(DATABASE)):
        with Crew(plan) as crew:
            disturb(settings, plan, crew, server, watch)
            (directory / STOP).touch()
        server.settle()
        url = server.url_for(DATABASE)  # of a new primary, it may be
        probe(replace(plan, url=url))
    recorder.close()
    with connected(url) as connection:
        left = ledger.read(connection)
    (directory / "ledger.json").write_text(json.dumps(asdict(left), indent=1) + "\n")
    sees_deaths = server.kind in SEE_DEATHS
    return History(read(directory), left, names, sees_deaths, profile.keeps_commits)


@contextlib.contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = create_engine(url, poolclass=NullPool, isolation_level=snapshot(url))
    with engine.begin() as connection:
        yield connection


def snapshot(url: str) -> IsolationLevel:
    """The isolation in which all is read as of one moment."""
    return "SERIALIZABLE" if url.startswith("sqlite") else "REPEATABLE READ"


def disturb(settings: Settings, plan: Plan, crew: Crew, server: Server, watch: Watch) -> None:
    """Let the workers work and the faults happen, until it is enough."""
    tail, start = Tail(plan.directory), now()
    with PROFILES[settings.profile].nemesis(crew, server, DATABASE, plan) as nemesis:
        while not nemesis.errors:
            time.sleep(PULSE)
            crew.fill()
            tail.follow()
            over = now() - start
            watch(over, tail)
            if (
                over >= settings.seconds
                and tail.counts["acquire", "ok"] >= settings.holds
                and tail.counts["write", "ok"] >= settings.writes
                and tail.counts["death", "ok"] >= settings.deaths
                and nemesis.done(tail)
            ):
                break
    if nemesis.errors:
        raise nemesis.errors[0]


def probe(plan: Plan) -> None:
    """See whether each name can be taken again: tries are counted, each a TTL after the last."""
    recorder, left = Recorder(plan.directory, PROBE), list(plan.names)
    members, ttl = plan.members, plan.ttl
    opened: Locks | Quorum = (
        Quorum(members, timeouts=TIMEOUTS) if members else Locks(plan.url, timeouts=TIMEOUTS)
    )
    with opened as locks:
        for number in range(PATIENCE + 1):
            if number and left:
                time.sleep(ttl)
            leases = [locks.lease(name, ttl=ttl, wait=0) for name in left]
            left = [lease.name for lease in leases if acquire(recorder, lease) is None]
    for url in members or (plan.url,):
        with Locks(url, timeouts=TIMEOUTS) as alone:  # a majority of a quorum may be without it
            for name in plan.names if members else ():
                with alone.lease(name, ttl=ttl, wait=PATIENCE * ttl):
                    pass
        for key, waiters in execute(url, "SELECT lock_name, waiters FROM dblock_lock"):
            recorder.begin("queue", name=text(key), waiters=waiters).tell("ok")
    recorder.close()
