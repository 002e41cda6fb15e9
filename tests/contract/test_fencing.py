"""The gate for fences, in a database of the user's that dblock's own tables need not be in."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import MetaData, Table, create_engine, inspect, select, text
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import create_async_engine

from dblock import (
    Conflict,
    DeadlockDetected,
    LockLost,
    Locks,
    SchemaMissing,
    StaleFence,
    Unavailable,
    Unsupported,
    fencing,
)
from dblock.aio import fencing as async_fencing
from dblock.arguments import FENCE_MAX
from tests.conftest import SERVERS, Database
from tests.contract.test_names import ALIKE, AWKWARD
from tests.servers import FAMILY
from tests.support import (
    BORROWED,
    MOMENT,
    SECONDS,
    Borrowed,
    Facts,
    Threads,
    borrowed,
    examples,
    told_to_retry,
)
from tests.worlds.surface import Bridged
from tests.worlds.world import World


def gate(on: Borrowed, name: Any, fence: Any, **options: Any) -> None:
    """Call that of the world that the connection is of."""
    if isinstance(on, Bridged):
        on._world.call(async_fencing.gate, on.target, name, fence, **options)
    else:
        fencing.gate(on, name, fence, **options)


def undo(on: Borrowed, savepoint: Any) -> None:
    if isinstance(on, Bridged):
        on.run(savepoint.rollback)
    else:
        savepoint.rollback()


def stale(newest: int) -> Any:
    return pytest.raises(StaleFence, match=f"fence {newest} has passed")


@pytest.fixture
def table() -> Table:
    return fencing.table(MetaData())


@pytest.fixture
def gated(engine: Engine, table: Table) -> Engine:
    """A database with the gate's table."""
    table.metadata.create_all(engine)
    return engine


@pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
def strict(
    db: Database, gated: Engine, world: World, request: pytest.FixtureRequest
) -> Iterator[Engine]:
    """The same, with transactions of a stricter level. SQLite has just one level."""
    level = "SERIALIZABLE" if db.kind == "sqlite" else request.param
    made = world.engine(db.users_url, isolation_level=level)
    yield made
    made.dispose()


def newest(engine: Engine, table: Table) -> dict[str, int]:
    """What the gates have seen, as others read it."""
    with engine.connect() as connection:
        rows = connection.execute(select(table.c.name, table.c.fence))
        return {name.decode() if isinstance(name, bytes) else name: seen for name, seen in rows}


# --- what is let through -------------------------------------------------------------------------


@pytest.mark.parametrize("how", BORROWED)
def test_no_fence_after_a_larger_one(gated: Engine, table: Table, facts: Facts, how: str) -> None:
    with borrowed(gated, how) as on:
        for fence in (5, 5, 8, FENCE_MAX - 1):
            gate(on, "report", fence)
            on.commit()
            gate(on, "report", fence)
            with stale(fence) as caught:
                gate(on, "report", fence - 1)
            assert (caught.value.name, caught.value.fence) == ("report", fence - 1)
            assert caught.value.newest == fence
            on.rollback()
        assert isinstance(caught.value, LockLost)
        # The refusal was no failed statement.
        with stale(FENCE_MAX - 1):
            gate(on, "report", 1)
        facts.add(on, 1)
        gate(on, "report", FENCE_MAX)
        on.commit()
    assert facts.ids() == {0, 1}
    assert newest(gated, table) == {"report": FENCE_MAX}


def test_the_fences_of_leases(gated: Engine, locks: Locks, others: Locks) -> None:
    with locks.lease("report") as lease, borrowed(gated, "connection") as on:
        first = lease.fence
        gate(on, "report", first)
        on.commit()
    with others.lease("report") as lease, borrowed(gated, "connection") as on:
        gate(on, "report", lease.fence)
        on.commit()
        with stale(lease.fence):
            gate(on, "report", first)


def test_a_rollback_undoes_it(gated: Engine, table: Table) -> None:
    with borrowed(gated, "connection") as on:
        gate(on, "report", 5)
        on.rollback()
        gate(on, "report", 4)
        on.commit()
        gate(on, "report", 6)
        on.rollback()
    assert newest(gated, table) == {"report": 4}


def test_a_savepoint_that_is_rolled_back_undoes_it(
    gated: Engine, table: Table, facts: Facts
) -> None:
    with borrowed(gated, "session") as on:
        facts.add(on, 1)
        gate(on, "report", 5)
        savepoint = on.begin_nested()
        gate(on, "report", 8)
        with stale(8):
            gate(on, "report", 7)
        undo(on, savepoint)
        gate(on, "report", 6)
        on.commit()
    assert newest(gated, table) == {"report": 6}
    assert facts.ids() == {0, 1}


def test_each_name_has_its_own(gated: Engine, table: Table) -> None:
    names = list(dict.fromkeys([*ALIKE, *AWKWARD]))
    with borrowed(gated, "connection") as on:
        for number, name in enumerate(names, 1):
            gate(on, name, len(names) - number + 1)
        on.commit()
    assert newest(gated, table) == dict(zip(names, range(len(names), 0, -1), strict=True))


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.booleans()), max_size=20)
)
def test_it_is_the_largest_that_was_committed(
    gated: Engine, table: Table, steps: list[tuple[str, int, bool]]
) -> None:
    with gated.begin() as connection:
        connection.execute(table.delete())
    committed: dict[str, int] = {}
    with borrowed(gated, "connection") as on:
        for name, fence, commits in steps:
            if fence < committed.get(name, 0):
                with stale(committed[name]):
                    gate(on, name, fence)
                on.commit()  # even so it changes nothing
            else:
                gate(on, name, fence)
                if commits:
                    committed[name] = fence
                    on.commit()
                else:
                    on.rollback()
    assert newest(gated, table) == committed


# --- several at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("second", [6, 7, 8])
def test_one_passes_at_a_time(
    gated: Engine, table: Table, threads: Threads, second: int, end: str, known: bool
) -> None:
    """The second waits for the first one's end, and is judged by that."""
    if known:
        with borrowed(gated, "connection") as on:
            gate(on, "report", 6)
            on.commit()

    def come_second() -> None:
        with borrowed(gated, "connection") as on:
            gate(on, "report", second)
            on.commit()

    with borrowed(gated, "connection") as on:
        gate(on, "report", 7)
        coming = threads.attempt(come_second)
        threading.Event().wait(MOMENT)
        assert not coming.done()
        getattr(on, end)()
        error = coming.exception(SECONDS)
    if end == "commit" and second < 7:
        assert isinstance(error, StaleFence)
        assert error.newest == 7
    else:
        assert error is None
        assert newest(gated, table) == {"report": second}


def test_a_fence_that_comes_again_keeps_others_out(gated: Engine, threads: Threads) -> None:
    """Although it changes nothing."""

    def come_second() -> None:
        with borrowed(gated, "connection") as on:
            gate(on, "report", 8)
            on.commit()

    with borrowed(gated, "connection") as on:
        gate(on, "report", 7)
        on.commit()
        gate(on, "report", 7)
        coming = threads.start(come_second)
        threading.Event().wait(MOMENT)
        assert not coming.done()
        on.commit()
        coming.result(SECONDS)


def test_what_is_committed_never_falls(gated: Engine, facts: Facts, threads: Threads) -> None:
    """Holders that are paused anywhere: a fence is used long after others have theirs."""
    fences = itertools.count(1)
    passed: list[int] = []
    refused: list[StaleFence] = []

    def hold(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(10):
            fence = next(fences)
            threading.Event().wait(chance.choice([0, 0, 0.01, 0.05]))
            while True:
                try:
                    with borrowed(gated, "connection") as on:
                        gate(on, "report", fence)
                        assert facts.read(on) <= fence
                        passed.append(fence)
                        facts.write(on, fence)
                        on.commit()
                except StaleFence as error:
                    refused.append(error)
                except DeadlockDetected:  # InnoDB's, about a row that was new and was undone
                    continue
                break

    for seed in range(8):
        threads.start(hold, seed)
    threads.join()
    assert passed == sorted(passed)
    assert len(passed) + len(refused) == 80
    assert all(error.newest in passed for error in refused)
    assert facts.n == max(passed)


def test_a_snapshot_that_is_older(
    gated: Engine, strict: Engine, facts: Facts, db: Database
) -> None:
    with borrowed(gated, "connection") as on:
        gate(on, "report", 5)
        on.commit()
    with borrowed(strict, "connection") as on:
        if db.kind == "sqlite":
            on.execute(text("BEGIN"))  # which the driver itself leaves to the first write
        facts.read(on)
        with borrowed(gated, "connection") as other:
            gate(other, "report", 7)
            other.commit()
        if db.kind in FAMILY:  # whose writes see what is newest
            with stale(7):
                gate(on, "report", 6)
        else:
            with pytest.raises(Conflict) as caught:
                gate(on, "report", 8)
            told_to_retry(caught.value)
        on.rollback()
        with stale(7):
            gate(on, "report", 6)
        on.rollback()
        gate(on, "report", 8)
        facts.write(on, 8)
        on.commit()
    assert facts.n == 8


@pytest.mark.parametrize("db", ["mariadb"], indirect=True)
def test_a_snapshot_that_mariadb_insists_on(gated: Engine, facts: Facts) -> None:
    """As it does by default from 11.6.2 on. From 11.4.2 on, and not before, the gate does not."""
    with borrowed(gated, "connection") as on, borrowed(gated, "connection") as other:
        on.execute(text("SET SESSION innodb_snapshot_isolation = ON"))
        gate(on, "report", 5)
        on.commit()
        facts.read(on)
        gate(other, "report", 7)
        other.commit()
        version = on.execute(text("SELECT VERSION()")).scalar_one().partition("-")[0]
        if tuple(map(int, version.split("."))) < (11, 4, 2):
            with pytest.raises(Conflict) as caught:
                gate(on, "report", 8)
            told_to_retry(caught.value)
            on.rollback()
        gate(on, "report", 8)
        on.commit()


IMPATIENT = {
    "postgresql": "SET LOCAL lock_timeout = '100ms'",
    **dict.fromkeys(FAMILY, "SET SESSION innodb_lock_wait_timeout = 1"),
    "sqlite": "PRAGMA busy_timeout = 100",
}


def test_whoever_does_not_wait_long(gated: Engine, db: Database) -> None:
    with borrowed(gated, "connection") as first, borrowed(gated, "connection") as second:
        gate(first, "report", 7)
        second.execute(text(IMPATIENT[db.kind]))
        # Where the server undoes the whole transaction, the caller is told that instead.
        setting = text("SELECT @@innodb_rollback_on_timeout")
        undone = db.kind in FAMILY and second.execute(setting).scalar_one()
        told, match = (DeadlockDetected, "undoing") if undone else (Unavailable, "in use")
        with pytest.raises(told, match=match):
            gate(second, "report", 8)
        second.rollback()
        first.commit()
        gate(second, "report", 8)
        second.rollback()


@pytest.mark.parametrize("db", SERVERS, indirect=True)
def test_a_deadlock(gated: Engine, threads: Threads) -> None:
    with borrowed(gated, "connection") as on:
        for name in "ab":
            gate(on, name, 1)
        on.commit()
    together = threading.Barrier(2)

    def cross(mine: str, other: str) -> bool:
        with borrowed(gated, "connection") as on:
            gate(on, mine, 2)
            together.wait(SECONDS)
            try:
                gate(on, other, 2)
            except DeadlockDetected as error:
                told_to_retry(error)
                return True
            on.commit()
            return False

    crossing = [threads.start(cross, *names) for names in ("ab", "ba")]
    assert sorted(one.result(SECONDS) for one in crossing) == [False, True]


# --- where it is ---------------------------------------------------------------------------------


def test_a_table_elsewhere(engine: Engine, db: Database) -> None:
    with engine.connect() as connection:
        schema = {"postgresql": "ops", "sqlite": "main"}.get(db.kind) or str(
            connection.execute(text("SELECT database()")).scalar_one()
        )
    if db.kind == "postgresql":
        with engine.begin() as connection:
            connection.execute(text("CREATE SCHEMA ops"))
    try:
        other = fencing.table(MetaData(), name="select", schema=schema)  # which has to be quoted
        other.metadata.create_all(engine)
        with borrowed(engine, "connection") as on:
            gate(on, "report", 7, table=other)
            on.commit()
            with stale(7):
                gate(on, "report", 6, table=other)
            on.rollback()
        assert newest(engine, other) == {"report": 7}
    finally:
        if db.kind == "postgresql":
            with engine.begin() as connection:
                connection.execute(text("DROP SCHEMA ops CASCADE"))


def test_a_table_that_is_missing(engine: Engine) -> None:
    with (
        borrowed(engine, "connection") as on,
        pytest.raises(SchemaMissing, match=r"dblock_fence.* is missing .*fencing\.table\(metadata"),
    ):
        gate(on, "report", 7)


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_role_without_rights(gated: Engine) -> None:
    with borrowed(gated, "connection") as on:
        on.execute(text("SET LOCAL ROLE pg_monitor"))
        with pytest.raises(Unsupported, match="needs SELECT, INSERT and UPDATE on"):
            gate(on, "report", 7)


def test_alembic_writes_its_migration(db: Database, table: Table) -> None:
    engine = create_engine(db.url)

    def ours(name: str | None, kind: str, parents: Any) -> bool:
        return kind != "table" or name == table.name

    with engine.begin() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_name": ours, "compare_type": True}
        )
        script = produce_migrations(context, table.metadata)
        assert script.upgrade_ops is not None
        written = render_python_code(script.upgrade_ops)
        code = "\n".join(["import sqlalchemy as sa", "def upgrade():", f"    {written}"])
        names: dict[str, Any] = {"op": Operations(context)}
        exec("from sqlalchemy.dialects import mysql, postgresql", names)
        exec(code, names)
        names["upgrade"]()
        assert inspect(connection).has_table(table.name)
        assert compare_metadata(context, table.metadata) == []
        for name in ("a", "A", "a "):
            fencing.gate(connection, name, 7)
    engine.dispose()


# --- bad input -----------------------------------------------------------------------------------

WRONG: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
    (b"report", 7, {}, TypeError, "name of a gate is a str, not bytes"),
    ("", 7, {}, ValueError, "name of a gate cannot be empty"),
    ("x" * 256, 7, {}, ValueError, "at most 255 characters"),
    ("a\0b", 7, {}, ValueError, "NUL"),
    ("\ud800", 7, {}, ValueError, "UTF-8"),
    ("report", None, {}, TypeError, "a fence is an int, such as lease.fence, not NoneType"),
    ("report", True, {}, TypeError, "not bool"),
    ("report", 7.0, {}, TypeError, "not float"),
    ("report", "7", {}, TypeError, r"not str: '7'; convert it with int\(\)"),
    ("report", 0, {}, ValueError, "at least 1"),
    ("report", -7, {}, ValueError, "at least 1"),
    ("report", 2**63, {}, OverflowError, "at most 9223372036854775807"),
    ("report", 7, {"table": "fences"}, TypeError, r"the Table that dblock\.fencing\.table made"),
    ("report", 7, {"trust_server": "no"}, TypeError, "trust_server is True or False"),
]


def test_bad_input(world: World) -> None:
    """Nothing is there to be connected to."""
    engine = world.engine("sqlite:////no/such/directory/app.db")
    with borrowed(engine, "session") as on:
        for name, fence, options, error, message in WRONG:
            with pytest.raises(error, match=message):
                gate(on, name, fence, **options)
    engine.dispose()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": "a-b"}, ValueError),
        ({"name": 7}, TypeError),
        ({"schema": ""}, ValueError),
        ({"schema": "a.b"}, ValueError),
    ],
)
def test_what_is_no_name_of_a_table(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        fencing.table(MetaData(), **options)


def test_what_a_table_is_not_added_to() -> None:
    with pytest.raises(TypeError, match="added to a MetaData, not NoneType"):
        fencing.table(None)  # type: ignore[arg-type]


def test_nothing_stays_locked_in_autocommit(gated: Engine) -> None:
    autocommit = gated.execution_options(isolation_level="AUTOCOMMIT")
    with (
        borrowed(autocommit, "connection") as on,
        pytest.raises(ValueError, match="autocommit mode, so nothing stays locked"),
    ):
        gate(on, "report", 7)


def test_what_is_no_connection(gated: Engine) -> None:
    wrong: list[Any] = ["sqlite://", None, gated]
    for on in wrong:
        with pytest.raises(TypeError, match="Connection"):
            fencing.gate(on, "report", 7)


def test_each_world_has_its_own() -> None:
    connection = create_async_engine("sqlite+aiosqlite://").connect()
    with pytest.raises(TypeError, match="a sync Connection"):
        fencing.gate(cast(Any, connection), "report", 7)
    with (
        create_engine("sqlite://").connect() as other,
        pytest.raises(TypeError, match="AsyncConnection, AsyncSession"),
    ):
        asyncio.run(async_fencing.gate(cast(Any, other), "report", 7))
