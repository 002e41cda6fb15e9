"""The gate for fences in another of Django's databases."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from dblock import SchemaMissing, StaleFence, Unsupported, fencing
from dblock.contrib.django import locks
from tests.conftest import KINDS, Database, NewDatabase
from tests.contrib.django.conftest import Site, of
from tests.databases.test_look_alikes import YUGABYTE, lie
from tests.support import MOMENT, SECONDS, Threads, without_comments
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "fencing.md"


@pytest.fixture(params=KINDS)
def warehouse(request: pytest.FixtureRequest, new_database: NewDatabase, site: Site) -> Database:
    """Another database than the default one, without dblock's tables."""
    database = new_database(request.param)
    site.use("warehouse", **of(database))
    return database


def migrate(kind: str) -> None:
    """Run the page's migration."""
    (statement,) = blocks(PAGE, f"sql gate {kind}")
    with connections["warehouse"].cursor() as cursor:
        cursor.execute(statement)


def gate(name: str, fence: int, **options: Any) -> None:
    fencing.gate(connections["warehouse"], name, fence, **options)


def test_no_fence_after_a_larger_one(warehouse: Database) -> None:
    migrate(warehouse.kind)
    for fence in (5, 5, 8):
        with transaction.atomic(using="warehouse"):
            gate("report", fence)
            gate("Report", 1)
    with transaction.atomic(using="warehouse"):
        with pytest.raises(StaleFence) as caught:
            gate("report", 7)
        assert (caught.value.fence, caught.value.newest) == (7, 8)
        gate("report", 9)
        transaction.set_rollback(True, using="warehouse")
    with (
        transaction.atomic(using="warehouse"),
        pytest.raises(StaleFence, match="fence 8 has passed"),
    ):
        gate("report", 7)


def test_one_passes_at_a_time(warehouse: Database, threads: Threads) -> None:
    migrate(warehouse.kind)

    def come_second() -> None:
        try:
            with transaction.atomic(using="warehouse"):
                gate("report", 6)
        finally:
            connections["warehouse"].close()

    with transaction.atomic(using="warehouse"):
        gate("report", 7)
        coming = threads.attempt(come_second)
        threading.Event().wait(MOMENT)
        assert not coming.done()
    assert isinstance(coming.exception(SECONDS), StaleFence)


def test_the_lease_is_in_the_default_database(new_database: NewDatabase, site: Site) -> None:
    site.use(**of(new_database("postgresql", migrated=True)))
    site.use("warehouse", **of(new_database("sqlite")))
    migrate("sqlite")
    (block,) = blocks(PAGE, "python django")
    written: list[int] = []
    exec(block, {"locks": locks, "store": lambda: written.append(1)})
    assert written == [1]
    with locks.lease("report") as lease, transaction.atomic(using="warehouse"):
        gate("report", lease.fence + 1)
        with pytest.raises(StaleFence):
            gate("report", lease.fence)


def test_where_nothing_would_stay_locked(warehouse: Database) -> None:
    with pytest.raises(ValueError, match=r"in no transaction\.atomic\(\) block"):
        gate("report", 7)


def test_a_table_that_is_missing(warehouse: Database) -> None:
    with (
        transaction.atomic(using="warehouse"),
        pytest.raises(SchemaMissing, match="dblock_fence"),
    ):
        gate("report", 7)


def test_the_default_connection(dj: Database) -> None:
    (statement,) = blocks(PAGE, f"sql gate {dj.kind}")
    with connection.cursor() as cursor:
        cursor.execute(statement)
    default: Any = connection  # Django's proxy of it
    with transaction.atomic():
        fencing.gate(default, "report", 7)
        with CaptureQueriesContext(connection) as queries:
            fencing.gate(default, "report", 7)
        sent = [without_comments(query["sql"]).split()[0] for query in queries]
        # MySQL's INSERT does not return the newest fence.
        assert sent == (["INSERT", "SELECT"] if dj.kind == "mysql" else ["INSERT"])


def test_a_look_alike(new_database: NewDatabase, site: Site) -> None:
    database = new_database("postgresql")
    site.use("warehouse", **of(database))
    migrate("postgresql")
    lie(database, YUGABYTE)
    with transaction.atomic(using="warehouse"):
        with pytest.raises(Unsupported, match="this server is YugabyteDB"):
            gate("report", 7)
        gate("report", 7, trust_server=True)
