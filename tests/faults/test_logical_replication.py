"""Rows of dblock's that come from another server by logical replication (promise 15).

A server that has been tried out has a witness of its own. What comes from elsewhere is nothing that
it vouches for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url

from dblock import LockLost, Locks, NotAcquired
from dblock.schema import upgrade
from tests.conftest import Database, NewDatabase, find_or_skip
from tests.faults.database import WAITING, epoch, pause, shorten_pause
from tests.servers import PostgreSQL, execute
from tests.support import LONG, eventually
from tests.worlds.world import World

EVERYTHING = ("lock", "guard", "applied", "once", "value", "waiter", "run", "epoch")
SYNCHRONIZED = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    with ExitStack() as stack:
        servers = []
        for _ in range(2):
            server = stack.enter_context(find_or_skip(PostgreSQL))
            execute(server.url, "ALTER SYSTEM SET wal_level = logical")
            server.restart()
            servers.append(server)
        yield servers[0], servers[1]


@dataclass
class Side:
    """dblock's tables on one of the servers."""

    url: str

    @property
    def database(self) -> str:
        return str(make_url(self.url).database)

    def try_out(self, ttl: float = 1.0) -> int:
        """Have leases granted, as who installs dblock does; return the last fence."""
        with Locks(self.url) as locks:
            for _ in range(3):
                with locks.lease("report", ttl=ttl, wait=0) as lease:
                    fence = lease.fence
        return fence

    def empty(self, *tables: str) -> None:
        """Make room for another's rows."""
        named = ", ".join(f"dblock_{name}" for name in tables or EVERYTHING)
        execute(self.url, f"TRUNCATE {named}")

    def publish(self, *tables: str) -> None:
        named = ", ".join(f"dblock_{name}" for name in tables or EVERYTHING)
        execute(self.url, f"CREATE PUBLICATION moved FOR TABLE {named}")

    def subscribe(self, source: Side, *, copy: bool) -> None:
        """Have the rows of another come here."""
        at = make_url(source.url)
        name = f"moved_{self.database}"
        place = f"host={at.host} port={at.port} user={at.username} dbname={at.database}"
        # Not in a transaction, as its slot could not be made there.
        execute(
            self.url,
            f"CREATE SUBSCRIPTION {name} CONNECTION '{place}' PUBLICATION moved "
            f"WITH (copy_data = {copy}, slot_name = {name})",
        )
        eventually(lambda: execute(self.url, SYNCHRONIZED) == [(0,)])
        self.follow(source)

    def follow(self, source: Side) -> None:
        """Wait until all that the other has written is here."""
        ((written,),) = execute(source.url, "SELECT pg_current_wal_insert_lsn()")
        here = (
            f"SELECT confirmed_flush_lsn >= '{written}' FROM pg_replication_slots "
            f"WHERE slot_name = 'moved_{self.database}'"
        )
        eventually(lambda: execute(source.url, here) == [(True,)])

    def leave(self) -> None:
        """Have nothing come from elsewhere any more."""
        name = f"moved_{self.database}"
        if execute(self.url, f"SELECT 1 FROM pg_subscription WHERE subname = '{name}'"):
            execute(self.url, f"DROP SUBSCRIPTION {name}")


@pytest.fixture
def sides(
    two: tuple[PostgreSQL, PostgreSQL], new_database: NewDatabase
) -> Iterator[tuple[Side, Side]]:
    made = []
    for server in two:
        db = new_database("postgresql", server=server)
        upgrade(db.url)
        made.append(Side(db.url))
    yield made[0], made[1]
    for side in made:
        side.leave()


def refuse(*locks: Any) -> None:
    """Have each be refused, because of a pause."""
    for lock in locks:
        with pytest.raises(NotAcquired, match="nothing is granted for another"):
            lock.__enter__()


@pytest.mark.parametrize(
    ("copy", "tables"),
    [(True, EVERYTHING), (False, EVERYTHING), (False, ("lock",))],
    ids=["copied", "not copied", "locks alone"],
)
def test_a_server_that_was_tried_out_does_not_believe_its_own_witness(
    sides: tuple[Side, Side], world: World, copy: bool, tables: tuple[str, ...]
) -> None:
    old, new = sides
    new.try_out()
    if copy:
        new.empty(*tables)
    old.publish(*tables)
    with world.locks(old.url) as before, world.locks(new.url) as after:
        if copy:
            assert before.lease("earlier", ttl=LONG, renew=False).acquire()
        new.subscribe(old, copy=copy)
        assert before.lease("other", ttl=LONG, renew=False).acquire()
        new.follow(old)
        new.leave()
        lost = before.lease("report", ttl=LONG, renew=False)
        assert lost.acquire()
        fence = lost.fence
        refuse(after.lease("report", wait=0), after.row("report", wait=0))
        longest = epoch(new.url).longest_ttl
        assert longest is not None
        # If its own row did not come: what was left of a lease when that came.
        assert 1 < longest <= LONG
        assert pause(new.url) > 0
        shorten_pause(new.url, 0)
        with after.lease("report", ttl=10, wait=0) as lease:
            assert lease.fence > fence


def test_fences_grow_there_and_back_again(sides: tuple[Side, Side], world: World) -> None:
    """The first server is used, then the second, then the first again."""
    first, second = sides
    fences = [max(first.try_out(), second.try_out())]
    second.empty()
    for old, new, copy in ((first, second, True), (second, first, False)):
        old.publish()
        new.subscribe(old, copy=copy)
        with world.locks(old.url) as before, world.locks(new.url) as after:
            assert before.lease("other", ttl=LONG, renew=False).acquire()
            new.follow(old)
            new.leave()
            for _ in range(2):
                with before.lease("report", ttl=10, wait=0) as lease:
                    fences.append(lease.fence)
            refuse(after.lease("more", wait=0))
            shorten_pause(new.url, 0)
            with after.lease("report", ttl=10, wait=0) as lease:
                fences.append(lease.fence)
            execute(new.url, "UPDATE dblock_lock SET expires_at = clock_timestamp()")
    assert fences == sorted(set(fences))


def test_rows_that_come_later_begin_another_pause(sides: tuple[Side, Side]) -> None:
    """Who uses the new server too early gets no word of the old one's that it would not hear of;
    and it needs no restart."""
    old, new = sides
    new.empty()
    old.publish()
    with Locks(old.url) as before, Locks(new.url) as after:
        assert before.lease("report", ttl=LONG, renew=False).acquire()
        new.subscribe(old, copy=True)
        early = after.lease("early", ttl=LONG, renew=False, wait=0)
        refuse(early)
        shorten_pause(new.url, 0)
        assert early.acquire()
        begun = epoch(new.url).epoch
        assert before.lease("other", ttl=LONG, renew=False).acquire()
        new.follow(old)
        new.leave()
        with pytest.raises(LockLost) as caught:
            early.renew()
        assert caught.value.reason == "failover"
        refuse(after.lease("late", wait=0))
        assert epoch(new.url).epoch > begun
        shorten_pause(new.url, 0)
        with after.lease("late", wait=0):
            pass


def test_what_is_emptied_elsewhere_is_heard_of(sides: tuple[Side, Side]) -> None:
    old, new = sides
    new.empty()
    old.publish()
    new.subscribe(old, copy=True)
    with Locks(new.url) as after:
        refuse(after.lease("report", wait=0))
        shorten_pause(new.url, 0)
        with after.lease("report", wait=0):
            pass
        execute(old.url, "TRUNCATE dblock_lock")
        new.follow(old)
        refuse(after.lease("report", wait=0))


def test_a_grant_in_flight_when_a_row_comes(sides: tuple[Side, Side]) -> None:
    """It waits for the row that comes, as for any that is in use, and does not overrule it."""
    old, new = sides
    new.try_out()
    new.empty()
    old.publish()
    new.subscribe(old, copy=True)
    with Locks(old.url) as before, Locks(new.url) as after:
        with before.lease("report", wait=0):
            pass
        new.follow(old)
        refuse(after.lease("report", wait=0))
        shorten_pause(new.url, 0)
        engine = create_engine(new.url)
        with engine.begin() as busy, after.row("report", on=busy, wait=0):
            # What comes waits for the transaction, and does not come before its end.
            assert before.lease("report", ttl=LONG, renew=False).acquire()
            eventually(lambda: execute(new.url, WAITING) == [(1,)])
        new.follow(old)
        assert not after.lease("report", wait=0).acquire()
        engine.dispose()
        refuse(after.lease("other", wait=0))


def test_an_epoch_that_was_copied_by_hand_is_noticed(unused: Database) -> None:
    """By a tool whose sessions are not of replication: its writer is another transaction."""
    with Locks(unused.url) as locks:
        with locks.lease("report", wait=0):
            pass
        execute(unused.url, "CREATE TABLE copy AS TABLE dblock_epoch")
        execute(unused.url, "UPDATE dblock_epoch SET server = 'another' FROM copy")
        refuse(locks.lease("report", wait=0))


def test_a_transaction_of_the_same_number_is_another(unused: Database) -> None:
    """A server counts them as another one does."""
    with Locks(unused.url) as locks:
        with locks.lease("report", wait=0):
            pass
        same = "UPDATE dblock_epoch SET writer = pg_current_xact_id()::xid::text"
        execute(unused.url, "SET session_replication_role = replica", same)
        refuse(locks.lease("report", wait=0))


def test_rows_of_a_replication_by_other_means(unused: Database) -> None:
    """Of tools that make their sessions such of a replication, as many do."""
    row = "INSERT INTO dblock_lock (lock_name, fence) VALUES ('elsewhere', 7)"
    with Locks(unused.url) as locks:
        with locks.lease("report", wait=0):
            pass
        execute(unused.url, row.replace("elsewhere", "here"))
        with locks.lease("report", wait=0):
            pass
        execute(unused.url, "SET session_replication_role = replica", row)
        refuse(locks.lease("report", wait=0))


def test_triggers_that_were_enabled_for_all_sessions(unused: Database) -> None:
    """As tools do that have disabled all triggers before: nobody is refused for that."""
    for table in ("dblock_lock", "dblock_epoch"):
        execute(
            unused.url, *(f"ALTER TABLE {table} {x} TRIGGER ALL" for x in ("DISABLE", "ENABLE"))
        )
    with Locks(unused.url) as locks:
        for _ in range(2):
            with locks.lease("report", wait=0) as lease:
                lease.renew()


def test_the_longest_ttl_of_either_is_kept(sides: tuple[Side, Side]) -> None:
    """The row that comes meets one that is there: at once, none is in the way of the other."""
    old, new = sides
    old.try_out(ttl=5)
    new.try_out(ttl=LONG)
    new.empty("lock")
    old.publish("lock", "epoch")
    new.subscribe(old, copy=True)
    assert epoch(new.url).longest_ttl == LONG
    with Locks(new.url) as after:
        refuse(after.lease("report", wait=0))


def test_volatile_tables_too(sides: tuple[Side, Side]) -> None:
    """Of those only the epoch is published, when its row changes."""
    old, new = sides
    for side in sides:
        side.try_out()
        upgrade(side.url, durability="volatile")
    old.publish("epoch")
    new.subscribe(old, copy=True)
    with Locks(new.url) as after:
        refuse(after.lease("report", wait=0))
