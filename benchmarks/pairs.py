"""One client, nobody else: what taking and giving back costs, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

from sqlalchemy import create_engine

from dblock import Locks

from . import peers, raw, transactions
from .figures import Effort, Figure, Sheet, Target
from .measure import TOTAL, Cycle, interleave
from .site import Site
from .transactions import DBLOCK, UPDATE

GROUP = "pairs"
KINDS = ("postgresql", "mariadb", "mysql", "sqlite")

HANDED_OVER = "dblock lease, handed over"
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
    "mysql": (peers.LEASE, peers.INSERT_DELETE, peers.STATEMENTS),
    "sqlite": (peers.LEASE, peers.INSERT_DELETE, peers.STATEMENTS),
}

TARGETS = (
    Target(GROUP, "lease, postgresql", TOTAL, peers.LEASE, 0.85, peers.INSERT_DELETE),
    Target(GROUP, "lease, postgresql", TOTAL, peers.LEASE, 0.7, peers.REDIS_PY_AOF),
    Target(GROUP, "lease, postgresql", TOTAL, peers.VOLATILE_LEASE, 1.3, peers.REDIS_PY),
    Target(GROUP, "lease, mariadb", TOTAL, peers.LEASE, 1.4, peers.INSERT_DELETE),
    Target(GROUP, "lease, mysql", TOTAL, peers.LEASE, 1.2, peers.INSERT_DELETE),
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
                ("lease, handed over", handed_over(site, locks, url, kind, stack)),
                (
                    "row lock in a user's transaction",
                    transactions.borrowed(locks, engine, url, stack),
                ),
                ("take", transactions.take(locks, engine, url, stack)),
                ("take in a Session", transactions.take_in_session(locks, engine, url, stack)),
                ("once", transactions.once(locks, engine, url, stack)),
                ("gate", transactions.gate(engine, url, stack)),
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
        cycles[entry.name] = peers.pair(client, "alone")
    return cycles


def handed_over(
    site: Site, locks: Locks, url: str, kind: str, stack: ExitStack
) -> dict[str, Cycle]:
    """A lease that goes on elsewhere, as in another process; beside one that does not."""
    elsewhere = stack.enter_context(Locks(url))
    lease, attached, text = locks.lease("handed over"), locks.lease("handed over"), ""

    def detach() -> None:
        nonlocal text
        text = lease.detach()

    def attach() -> None:
        nonlocal attached
        attached = elsewhere.attach(text)
        attached.acquire()

    return {
        HANDED_OVER: {
            "acquire": lease.acquire,
            "detach": detach,
            "attach": attach,
            "release": lambda: attached.release(),
        },
        **alone(site, kind, (peers.LEASE,), stack),
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
