"""Run the migrations, from a checkout or from an installed package."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, create_engine, event, inspect, select, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from .. import clock
from ..dialects import Dialect
from ..errors import Unsupported
from ..io.connecting import detached
from ..protocol.faults import Fault
from ..target import resolve
from ..timeouts import Timeouts
from ..version import SCHEMA_VERSION, Schema
from .migration_lock import alone, told
from .place import config
from .tables import tables

if TYPE_CHECKING:
    from ..target import Target

DURABILITIES = ("durable", "volatile")
# Seconds to wait for another who creates or upgrades dblock's tables.
PATIENCE = 60.0
# Alembic keeps its environment in module globals.
_one_at_a_time = threading.Lock()


class Upgraded(NamedTuple):
    """What an upgrade did: the tables that it created, and from which revision to which."""

    created: tuple[str, ...]
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.created and self.before is None:
            return f"created {', '.join(self.created)}, at revision {self.after}"
        if self.before == self.after:
            return f"already at revision {self.after}"
        return f"upgraded from revision {self.before} to {self.after}"


def upgrade(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    revision: str = "head",
    durability: str | None = None,
    trust_server: bool = False,
) -> Upgraded:
    """Create dblock's tables, or bring them to ``revision``. Harmless when they are there.

    ``durability`` is what becomes of the lock table in a crash, None to leave it as it is.
    ``"durable"``, as it is at first: leases survive. ``"volatile"``, on PostgreSQL: none does, and
    for the longest TTL that may be out none is granted; in return acquiring waits for no disk.
    Raises Unsupported where there is no such table.

    ``trust_server`` is as for :class:`dblock.Locks`.

    What it did is told by what it returns.

    Safe to run in several processes at once: one migrates, the others wait and find it done.
    Unsupported for older tables that other migrations made: those have to bring them further.
    """
    return _run(command.upgrade, target, schema, prefix, revision, durability, trust_server)


def downgrade(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    revision: str = "base",
    trust_server: bool = False,
) -> None:
    """Go back to ``revision``; ``"base"`` drops the tables, and with them every fence."""
    _run(command.downgrade, target, schema, prefix, revision, None, trust_server)


def sql(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    durability: str | None = None,
) -> str:
    """Return the statements of ``upgrade`` for review or for another tool, without any I/O."""
    engine, dialect = resolve(target, timeouts=Timeouts(), schema=schema, prefix=prefix)
    out = io.StringIO()
    alembic = _config(dialect, durability)
    alembic.output_buffer = out
    alembic.attributes["dialect"] = engine.dialect.name
    with _one_at_a_time:
        command.upgrade(alembic, "head", sql=True)
    return out.getvalue()


def _run(
    run: Any,
    target: Target,
    schema: str | None,
    prefix: str,
    revision: str,
    durability: str | None,
    trust_server: bool,
) -> Upgraded:
    _, dialect = resolve(target, timeouts=Timeouts(), schema=schema, prefix=prefix)
    alembic = _config(dialect, durability)
    place: dict[str, Any] = {"schema": schema, "prefix": prefix, "trust_server": trust_server}
    with migrating(target, **place) as connection:
        there = _there(connection, schema, prefix)
        before = _revision(connection, schema, prefix, there)
        if _anothers(connection, schema, prefix):
            if (
                run is command.upgrade
                and revision == "head"
                and before == f"dblock_{SCHEMA_VERSION:04d}"
                and durability is None
            ):
                return Upgraded((), before, before)
            raise Unsupported(
                "dblock's tables here were made by other migrations, Django's or a history of "
                "yours: change them there"
            )
        alembic.attributes["connection"] = connection
        run(alembic, revision)
        now = _there(connection, schema, prefix)
        created = tuple(name for name in now if name not in there)
        return Upgraded(created, before, _revision(connection, schema, prefix, now))


def _there(connection: Connection, schema: str | None, prefix: str) -> list[str]:
    """Return which of the tables are there."""
    present = set(inspect(connection).get_table_names(schema))
    wanted = [table.name for table in tables(MetaData(), schema=schema, prefix=prefix).values()]
    return [name for name in wanted if name in present]


def _revision(
    connection: Connection, schema: str | None, prefix: str, there: Sequence[str]
) -> str | None:
    """Return the revision that the tables are at which are there; None without any."""
    if f"{prefix}schema" not in there:
        return None
    table = tables(MetaData(), schema=schema, prefix=prefix)["schema"]
    row = connection.execute(select(text("*")).select_from(table)).first()
    return f"dblock_{Schema.of(row).revision:04d}"


@contextlib.contextmanager
def migrating(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    trust_server: bool = False,
) -> Iterator[Connection]:
    """Yield a connection in a transaction, as the only one that migrates this database now."""
    engine, dialect = resolve(
        target, timeouts=Timeouts(), schema=schema, prefix=prefix, trust_server=trust_server
    )
    # Connections made as the engine makes them, but never put into its pool: SQLite's is altered.
    apart = create_engine(engine.url, poolclass=NullPool, creator=lambda: detached(engine.pool))
    with contextlib.ExitStack() as stack:
        if not isinstance(target, Engine):
            stack.callback(engine.dispose)
        stack.enter_context(told(dialect))
        stack.enter_context(_one_at_a_time)
        if dialect.one_writer:
            _begin_immediately(apart, dialect)
        else:
            stack.enter_context(alone(engine, dialect, "dblock", wait=PATIENCE))
        connection = stack.enter_context(apart.connect())
        stack.enter_context(connection.begin())
        for statement in dialect.migration_settings():
            connection.exec_driver_sql(statement)
        yield connection


def _anothers(connection: Connection, schema: str | None, prefix: str) -> bool:
    """Whether the tables are there, but not of this history."""
    look = inspect(connection)
    there = look.has_table(f"{prefix}schema", schema)
    return there and not look.has_table(f"{prefix}version", schema)


def _config(dialect: Dialect, durability: str | None) -> Config:
    if durability not in (None, *DURABILITIES):
        raise ValueError(f"durability is one of {', '.join(DURABILITIES)}, not {durability!r}")
    made = config(dialect.schema, dialect.prefix)
    if durability is not None:
        made.attributes["statements"] = dialect.set_durability(durability)
    return made


def _begin_immediately(engine: Engine, dialect: Dialect) -> None:
    """Make SQLite's DDL transactional: the driver itself commits before it (PEP 249's legacy)."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.isolation_level = None
        until = clock.now() + PATIENCE
        while True:  # SQLite itself waits a few seconds, in which nothing interrupts it
            try:
                driver.execute("PRAGMA journal_mode = WAL")
                driver.execute("BEGIN IMMEDIATE")
                return
            except Exception as error:
                busy = dialect.adapter.classify(error) is Fault.BUSY
                if not busy or clock.now() >= until:
                    raise
