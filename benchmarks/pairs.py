"""One client, nobody else: what taking and giving back costs, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, update
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from dblock import Locks

from . import peers, raw
from .figures import Effort, Figure, Sheet, Target
from .measure import TOTAL, Cycle, interleave
from .site import Site

GROUP = "pairs"
KINDS = ("postgresql", "mariadb", "sqlite")
TICKET = Table("ticket", MetaData(), Column("id", Integer), Column("stock", Integer))

DBLOCK, BY_CORE, UPDATE = "dblock", "the same by SQLAlchemy Core", "raw UPDATE + COMMIT"
TRY_ADVISORY = "raw pg_try_advisory_lock"

ALONE = {
    "postgresql": (
        peers.LEASE,
        peers.VOLATILE_LEASE,
        peers.INSERT_DELETE,
        peers.STATEMENTS,
        *peers.LIBRARIES[1:],
    ),
    "mariadb": (peers.LEASE, peers.INSERT_DELETE, peers.STATEMENTS),
    "sqlite": (peers.LEASE, peers.INSERT_DELETE, peers.STATEMENTS),
}

TARGETS = (
    Target(GROUP, "lease, postgresql", TOTAL, peers.LEASE, 0.85, peers.INSERT_DELETE),
    Target(GROUP, "lease, postgresql", TOTAL, peers.LEASE, 0.7, peers.REDIS_PY_AOF),
    Target(GROUP, "lease, postgresql", TOTAL, peers.VOLATILE_LEASE, 1.3, peers.REDIS_PY),
    Target(GROUP, "lease, mariadb", TOTAL, peers.LEASE, 1.4, peers.INSERT_DELETE),
    Target(GROUP, "lease, sqlite", TOTAL, peers.LEASE, 3.0, peers.INSERT_DELETE),
    *(
        Target(GROUP, f"row lock, {kind}", TOTAL, peers.ROW, 1.25, peers.FOR_UPDATE)
        for kind in KINDS
    ),
    Target(
        GROUP,
        "row lock in a user's transaction, postgresql",
        TOTAL,
        peers.ROW,
        1.5,
        peers.FOR_UPDATE,
    ),
    *(Target(GROUP, f"take, {kind}", TOTAL, DBLOCK, 1.1, UPDATE) for kind in KINDS),
    Target(GROUP, "refused try, postgresql", TOTAL, peers.LEASE, 5.0, TRY_ADVISORY),
)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """Measure every scenario on each database."""
    for kind, url in site.urls(KINDS):
        with ExitStack() as stack:
            engine = create_engine(url)
            stack.callback(engine.dispose)
            locks = stack.enter_context(Locks(url))
            for scenario, contenders in (
                ("lease", alone(site, kind, ALONE[kind], stack)),
                ("row lock", alone(site, kind, (peers.ROW, peers.FOR_UPDATE), stack)),
                ("row lock in a user's transaction", borrowed(locks, engine, url, stack)),
                ("take", take(locks, engine, url, stack)),
                ("take in a Session", take_in_session(locks, engine, url, stack)),
                ("refused try", refused(locks, url, stack)),
            ):
                yield from _measure(f"{scenario}, {kind}", contenders, effort)


def _measure(scenario: str, contenders: dict[str, Cycle], effort: Effort) -> Iterator[Figure]:
    found = interleave(list(contenders.values()), effort.rounds, effort.turn)
    sheet = Sheet(GROUP, scenario)
    for (who, cycle), rounds in zip(contenders.items(), found, strict=True):
        for medians in rounds:
            for step in [*cycle, TOTAL] if len(cycle) > 1 else [TOTAL]:
                sheet.add(who, step, "us", medians[step])
    return sheet.figures()


def alone(site: Site, kind: str, names: tuple[str, ...], stack: ExitStack) -> dict[str, Cycle]:
    """An uncontended lock of each contender, made anew each time where it is a library's."""
    cycles = {}
    for entry in peers.entries(site, names, kind):
        client = stack.enter_context(closing(entry.connect()))
        cycles[entry.name] = pair(client, "alone")
    return cycles


def pair(client: peers.Client, name: str) -> Cycle:
    lock = client.lock(name)

    def acquire() -> None:
        nonlocal lock
        lock = client.lock(name)
        peers.take(lock)

    return {"acquire": acquire, "release": lambda: lock.release()}


def borrowed(locks: Locks, engine: Engine, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """A row lock in a transaction of the user's."""
    connection = stack.enter_context(engine.connect())
    return {
        peers.ROW: {
            "acquire": lambda: locks.row("borrowed", on=connection).acquire(),
            "release": connection.commit,
        },
        peers.FOR_UPDATE: pair(stack.enter_context(closing(raw.ForUpdate(url))), "row"),
    }


def take(locks: Locks, engine: Engine, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """``take`` and a commit on an SQLAlchemy Connection."""
    connection = stack.enter_context(engine.connect())
    by_core = stack.enter_context(engine.connect())
    bare = stack.enter_context(closing(raw.connect(url, autocommit=False)))
    counter = locks.counter(TICKET.c.stock, key=TICKET.c.id)
    statement = (
        update(TICKET).where(TICKET.c.id == 1, TICKET.c.stock >= 1).values(stock=TICKET.c.stock - 1)
    )
    return {
        DBLOCK: {"take": lambda: counter.take(connection, 1), "commit": connection.commit},
        UPDATE: raw.single_update(bare),
        BY_CORE: {"take": lambda: by_core.execute(statement), "commit": by_core.commit},
    }


def take_in_session(locks: Locks, engine: Engine, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """``take`` and a commit in an ORM session, which checks a connection out each time."""
    session = stack.enter_context(Session(engine))
    bare = stack.enter_context(closing(raw.connect(url, autocommit=False)))
    counter = locks.counter(TICKET.c.stock, key=TICKET.c.id)
    return {
        DBLOCK: {"take": lambda: counter.take(session, 1), "commit": session.commit},
        UPDATE: raw.single_update(bare),
    }


def refused(locks: Locks, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """One try for a lease that another has: the try, and a look at who has it."""
    other = stack.enter_context(Locks(url))
    held = other.lease("refused", ttl=24 * 3600)
    held.acquire()
    stack.callback(held.release)
    lease = locks.lease("refused")

    def attempt() -> None:
        assert not lease.acquire(blocking=False)

    cycles: dict[str, Cycle] = {peers.LEASE: {"try": attempt}}
    same = stack.enter_context(closing(raw.SameStatements(url)))
    cycles[peers.STATEMENTS] = same.refused("refused")
    if same.kind == "postgresql":
        stack.enter_context(closing(raw.Advisory(url))).lock("refused").acquire()
        advisory = stack.enter_context(closing(raw.Advisory(url)))
        cycles[TRY_ADVISORY] = advisory.refused("refused")
    return cycles
