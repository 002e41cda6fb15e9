"""What is measured on each database: dblock's cycle, and the yardsticks beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, update
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from dblock import Locks
from dblock.schema import upgrade
from tests.servers import MariaDB, PostgreSQL

from .measure import TOTAL, Cycle, Effort, Ratio, interleave, ratio
from .raw import Raw

KINDS = ("postgresql", "mariadb", "sqlite")
#: dblock may cost this much of what the bare driver needs.
TARGET = 1.25

TICKET = Table("ticket", MetaData(), Column("id", Integer), Column("stock", Integer))


@dataclass(frozen=True, slots=True)
class Scenario:
    """One cycle of dblock's and the same work by others, step by step."""

    name: str
    ours: Cycle
    yardsticks: dict[str, Cycle]
    #: Which yardstick the sum of the steps has a target against.
    targets: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table. Times are medians in us."""

    database: str
    scenario: str
    step: str
    yardstick: str
    raw: float
    ours: float
    ratio: Ratio
    target: float | None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.ratio.median <= self.target


@contextmanager
def database(kind: str) -> Iterator[str]:
    """Start a durable server of a kind and yield the URL of a database with all the tables."""
    with ExitStack() as stack:
        if kind == "sqlite":
            directory = stack.enter_context(TemporaryDirectory())
            url = f"sqlite:///{Path(directory) / 'benchmark.db'}"
        else:
            make = {"postgresql": PostgreSQL, "mariadb": MariaDB}[kind]
            server = stack.enter_context(make(durable=True))
            server.create_database("benchmark")
            url = server.url_for("benchmark")
        upgrade(url)
        yield url


def run(kind: str, url: str, effort: Effort) -> Iterator[Result]:
    """Measure every scenario on one database."""
    with ExitStack() as stack:
        engine = create_engine(url)
        stack.callback(engine.dispose)
        locks = stack.enter_context(Locks(url))
        others = stack.enter_context(Locks(url))
        raw = Raw(kind, url)
        stack.callback(raw.close)
        raw.create_tables()
        for scenario in (
            lease(locks, raw),
            row(locks, raw),
            borrowed_row(locks, engine, raw, stack),
            take(locks, engine, raw, stack),
            take_in_session(locks, engine, raw, stack),
            refused(locks, others, raw),
        ):
            yield from results(kind, scenario, effort)


def results(kind: str, scenario: Scenario, effort: Effort) -> Iterator[Result]:
    ours, *yardsticks = interleave([scenario.ours, *scenario.yardsticks.values()], effort)
    steps = [*scenario.ours, TOTAL] if len(scenario.ours) > 1 else [TOTAL]
    for name, rounds in zip(scenario.yardsticks, yardsticks, strict=True):
        for step in steps:
            yield Result(
                database=kind,
                scenario=scenario.name,
                step=step,
                yardstick=name,
                raw=median(times[step] for times in rounds),
                ours=median(times[step] for times in ours),
                ratio=ratio(ours, rounds, step),
                target=scenario.targets.get(name) if step == TOTAL else None,
            )


def lease(locks: Locks, raw: Raw) -> Scenario:
    """An uncontended lease, made anew each time as in ``with locks.lease(...)``."""
    held = locks.lease("lease")

    def acquire() -> None:
        nonlocal held
        held = locks.lease("lease", ttl=30)
        held.acquire()

    return Scenario(
        "lease",
        {"acquire": acquire, "release": lambda: held.release()},
        {
            "INSERT + DELETE": raw.insert_delete(),
            "same statements": raw.same_statements(locks.dialect),
        },
        {"INSERT + DELETE": TARGET},
    )


def row(locks: Locks, raw: Raw) -> Scenario:
    """A row lock in a transaction of dblock's own."""
    held = locks.row("row")

    def acquire() -> None:
        nonlocal held
        held = locks.row("row")
        held.acquire()

    return Scenario(
        "row lock",
        {"acquire": acquire, "release": lambda: held.release()},
        {"FOR UPDATE + COMMIT": raw.select_for_update()},
        {"FOR UPDATE + COMMIT": TARGET},
    )


def borrowed_row(locks: Locks, engine: Engine, raw: Raw, stack: ExitStack) -> Scenario:
    """A row lock in a transaction of the user's."""
    connection = stack.enter_context(engine.connect())
    return Scenario(
        "row lock, user's transaction",
        {
            "acquire": lambda: locks.row("borrowed", on=connection).acquire(),
            "release": connection.commit,
        },
        {"FOR UPDATE + COMMIT": raw.select_for_update()},
    )


def take(locks: Locks, engine: Engine, raw: Raw, stack: ExitStack) -> Scenario:
    """``take`` and a commit on an SQLAlchemy Connection."""
    connection = stack.enter_context(engine.connect())
    by_core = stack.enter_context(engine.connect())
    counter = locks.counter(TICKET.c.stock, key=TICKET.c.id)
    statement = (
        update(TICKET).where(TICKET.c.id == 1, TICKET.c.stock >= 1).values(stock=TICKET.c.stock - 1)
    )
    return Scenario(
        "take",
        {"take": lambda: counter.take(connection, 1), "commit": connection.commit},
        {
            "UPDATE + COMMIT": raw.single_update(),
            "the same by SQLAlchemy": {
                "take": lambda: by_core.execute(statement),
                "commit": by_core.commit,
            },
        },
        {"UPDATE + COMMIT": TARGET},
    )


def take_in_session(locks: Locks, engine: Engine, raw: Raw, stack: ExitStack) -> Scenario:
    """``take`` and a commit in an ORM session, which checks a connection out each time."""
    session = stack.enter_context(Session(engine))
    counter = locks.counter(TICKET.c.stock, key=TICKET.c.id)
    return Scenario(
        "take in a Session",
        {"take": lambda: counter.take(session, 1), "commit": session.commit},
        {"UPDATE + COMMIT": raw.single_update()},
    )


def refused(locks: Locks, others: Locks, raw: Raw) -> Scenario:
    """One try for a lease that another has: the try, and a look at who has it."""
    others.lease("refused", ttl=24 * 3600).acquire()
    lease = locks.lease("refused")

    def attempt() -> None:
        assert not lease.acquire(blocking=False)

    yardsticks = {"same statements": raw.refused_statements(locks.dialect, "refused")}
    if raw.kind == "postgresql":
        yardsticks["pg_try_advisory_lock"] = raw.refused_advisory()
    return Scenario("refused try", {"try": attempt}, yardsticks)
