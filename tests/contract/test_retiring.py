"""Names that nobody uses are retired: their rows are deleted, and fences of a name still grow."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlalchemy import MetaData, insert, select, text, update
from sqlalchemy.engine import Engine

from dblock import LockLost, Locks
from dblock.protocol.inspect import loss_of
from dblock.protocol.lease import Held
from dblock.protocol.term import Term
from dblock.schema.tables import tables
from tests.contract.conftest import NewLocks
from tests.servers import FAMILY
from tests.support import LONG, TABLE, WAITERS, Facts, Threads, blocked, borrowed, eventually

MONTH = 30 * 24 * 3600.0
LONG_AGO = datetime(2000, 1, 1)
VALUES = tables(MetaData())["value"]


def age(engine: Engine, locks: Locks, *names: str) -> None:
    """Let names have been used long ago, by the database's clock."""
    keys = [locks._database.dialect.key(name) for name in names]
    statement = update(TABLE).where(TABLE.c.lock_name.in_(keys))
    with engine.begin() as connection:
        connection.execute(statement.values(acquired_at=LONG_AGO, expires_at=LONG_AGO))


def used(locks: Locks, engine: Engine, *names: str) -> None:
    """Take names once, a long time ago."""
    for name in names:
        with locks.lease(name, ttl=LONG):
            pass
    age(engine, locks, *names)


def rows(engine: Engine, locks: Locks) -> set[str]:
    """The names that have a row, and on MariaDB one for guards."""
    with engine.connect() as connection:
        found = set(connection.execute(select(TABLE.c.lock_name)).scalars())
        if locks._database.dialect.name in FAMILY:
            guards = set(connection.execute(text("SELECT lock_name FROM dblock_guard")).scalars())
            assert guards == found - {b""}
    return {name.decode() if isinstance(name, bytes) else name for name in found} - {""}


def test_what_is_not_used_goes(locks: Locks, engine: Engine) -> None:
    used(locks, engine, "old", "order:42", "ä ' %s")
    with locks.lease("new", ttl=LONG), locks.row("row"):
        pass
    assert locks.prune_names(MONTH) == 4
    assert rows(engine, locks) == {"new"}
    assert locks.prune_names(timedelta(days=30)) == 0


def test_fences_grow(locks: Locks, others: Locks, engine: Engine) -> None:
    """A name that comes back gets a larger fence, however its row is made."""
    for _ in range(5):
        used(locks, engine, "report")
    used(locks, engine, "other", "fair", "row")
    assert locks.prune_names(MONTH) == 4
    for name in ("report", "other"):
        with locks.lease(name, ttl=LONG) as lease:
            assert lease.fence == 6
    with others.row("row"):
        pass
    with locks.lease("row", ttl=LONG) as lease:
        assert lease.fence == 6
    with others.lease("fair", fair=True, ttl=LONG) as lease:
        assert lease.fence == 6
    assert locks.show("unused").fence == 0


def test_the_floor_never_falls(locks: Locks, engine: Engine) -> None:
    for _ in range(5):
        used(locks, engine, "first")
    assert locks.prune_names(MONTH) == 1
    with engine.begin() as connection:  # a name of before, whose fence is lower
        connection.execute(
            insert(TABLE).values(
                lock_name=locks._database.dialect.key("second"),
                fence=2,
                acquired_at=LONG_AGO,
                expires_at=LONG_AGO,
            )
        )
        if locks._database.dialect.name in FAMILY:
            connection.execute(text("INSERT INTO dblock_guard (lock_name) VALUES ('second')"))
    assert locks.prune_names(MONTH) == 1
    with locks.lease("first", ttl=LONG) as lease:
        assert lease.fence == 6


def test_what_is_used_stays(locks: Locks, others: Locks, engine: Engine) -> None:
    kept = locks.cron("kept", at_least=3600)(lambda: None)
    kept()
    with locks.lease("held", ttl=LONG) as lease:
        used(others, engine, "old")
        assert locks.prune_names(60) == 1
        assert rows(engine, locks) == {"held", "kept"}
        lease.check()
        lease.renew()
    assert not others.lease("kept").acquire(blocking=False)
    assert locks.prune_names(MONTH) == 0


def test_who_has_expired_long_ago_is_told_so(locks: Locks, engine: Engine) -> None:
    lease = locks.lease("report", ttl=0.1, renew=False)
    assert lease.acquire()
    eventually(lease.lost.is_set)
    age(engine, locks, "report")
    assert locks.prune_names(MONTH) == 1
    with pytest.raises(LockLost) as caught:
        lease.release()
    assert caught.value.reason == "expired"


@pytest.mark.parametrize(("now", "reason"), [(10.0, "forced"), (40.0, "expired")])
def test_a_row_that_is_gone_was_removed_by_force_only_within_the_term(
    now: float, reason: str
) -> None:
    loss = loss_of(None, "report", "token", Held(3, Term(0.0, 30.0)), now)
    assert loss is not None
    assert loss.reason == reason


def test_a_name_with_a_queue_stays(locks: Locks, engine: Engine) -> None:
    """Who stands in it would wait for nobody."""
    used(locks, engine, "report")
    queue = ["x" * 56] if locks._database.dialect.name == "postgresql" else "x" * 56
    with engine.begin() as connection:
        connection.execute(update(TABLE).values(waiters=queue))
    assert locks.prune_names(MONTH) == 0
    assert rows(engine, locks) == {"report"}


def test_a_name_that_is_locked_stays(locks: Locks, others: Locks, engine: Engine) -> None:
    """And nobody waits for it: the others go."""
    used(locks, engine, "a", "locked", "z")
    if locks._database.dialect.traits.one_writer:
        with others.row("locked"):
            pass  # nothing else is written meanwhile
    else:
        with others.row("locked"):
            assert locks.prune_names(MONTH) == 2
            assert rows(engine, locks) == {"locked"}
        used(locks, engine, "a")
        with blocked(engine, locks, "a"):  # by its lock row alone
            assert locks.prune_names(MONTH) == 1
    eventually(lambda: locks.prune_names(MONTH) >= 0 and rows(engine, locks) == set())


def test_a_guarded_name_stays(locks: Locks, engine: Engine, facts: Facts) -> None:
    if locks._database.dialect.traits.one_writer:
        return  # nothing else is written meanwhile
    used(locks, engine, "old")
    with locks.lease("report", ttl=LONG) as lease, borrowed(engine, "connection") as connection:
        with lease.guard(connection):
            facts.write(connection, lease.fence)
            age(engine, locks, "report")
            assert locks.prune_names(MONTH) == 1
            assert rows(engine, locks) == {"report"}
        connection.commit()
    assert facts.n == 1


def test_page_by_page(locks: Locks, engine: Engine) -> None:
    """As many as there are, of which one statement looks at some, in the order of their bytes."""
    used(locks, engine, "last")
    with locks.lease("in use", ttl=LONG):
        names = [f"order:{number}" for number in range(2500)]
        old = {"fence": 7, "acquired_at": LONG_AGO, "expires_at": LONG_AGO}
        with engine.begin() as connection:
            connection.execute(
                insert(TABLE),
                [{"lock_name": locks._database.dialect.key(name), **old} for name in names],
            )
            if locks._database.dialect.name in FAMILY:
                connection.execute(
                    text("INSERT INTO dblock_guard (lock_name) VALUES (:name)"),
                    [{"name": n} for n in names],
                )
        assert locks.prune_names(MONTH) == 2501
        assert rows(engine, locks) == {"in use"}
    with locks.lease("last", ttl=LONG) as lease:
        assert lease.fence == 8


def test_old_values_of_no_name_go(locks: Locks, engine: Engine) -> None:
    """And no others: of names that are there, that were written since, or that are limits."""
    with locks.lease("in use", ttl=LONG):
        for name in ("in use", "gone", "young"):
            write_value(engine, locks, name, LONG_AGO if name != "young" else datetime(2100, 1, 1))
        used(locks, engine, "old")
        write_value(engine, locks, "old", LONG_AGO)
        with engine.begin() as connection:
            many = [values(locks, f"gone:{number}", LONG_AGO) for number in range(1500)]
            limit = values(locks, "limit", LONG_AGO) | {"fence": 0}
            connection.execute(insert(VALUES), [*many, limit])
        assert locks.prune_names(MONTH) == 1
        with engine.connect() as connection:
            found = set(connection.execute(select(VALUES.c.lock_name)).scalars())
        assert found == {locks._database.dialect.key(name) for name in ("in use", "young", "limit")}


def values(locks: Locks, name: str, written_at: datetime) -> dict[str, object]:
    key = locks._database.dialect.key(name)
    return {"lock_name": key, "fence": 1, "value": "1", "written_at": written_at}


def write_value(engine: Engine, locks: Locks, name: str, written_at: datetime) -> None:
    with engine.begin() as connection:
        connection.execute(insert(VALUES).values(**values(locks, name, written_at)))


def test_nobody_sees_the_floor(locks: Locks, engine: Engine) -> None:
    used(locks, engine, "report")
    locks.prune_names(MONTH)
    assert locks.list() == []
    with locks.lease("report", ttl=LONG):
        assert [state.name for state in locks.list()] == ["report"]


def test_who_waits_for_a_row_goes_on(
    locks: Locks, new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """The row is made anew."""
    fence = 0
    for _ in range(3):
        used(locks, engine, "report")
        with new_locks().row("report"):
            row = threads.start(_row, new_locks())
            lease = threads.start(_lease, new_locks())
            eventually(lambda: locks._database.dialect.traits.one_writer or _waiters(engine) == 2)
        while not (row.done() and lease.done()):
            locks.prune_names(60)
        before, fence = fence, lease.result(LONG)
        assert fence > before + 1
        row.result(LONG)


def _waiters(engine: Engine) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(WAITERS.c.id)).all())


def _row(locks: Locks) -> None:
    with locks.row("report"):
        pass


def _lease(locks: Locks) -> int:
    with locks.lease("report", ttl=LONG) as lease:
        return lease.fence


@pytest.mark.parametrize(
    ("idle", "error", "says"),
    [
        (0, ValueError, "at least 60 seconds"),
        (59.9, ValueError, "at least 60 seconds"),
        (-1, ValueError, "cannot be negative"),
        (float("nan"), ValueError, "NaN"),
        (float("inf"), OverflowError, "at most 100 years"),
        ("30d", TypeError, "a number of seconds or a timedelta"),
        (None, TypeError, "a number of seconds or a timedelta"),
    ],
)
def test_bad_input(locks: Locks, idle: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        locks.prune_names(idle)  # type: ignore[arg-type]
