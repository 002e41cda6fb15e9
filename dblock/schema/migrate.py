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
# How many seconds to wait for another process that creates or upgrades dblock's tables.
PATIENCE = 60.0
# Alembic keeps its environment in module globals.
_one_at_a_time = threading.Lock()


class Upgraded(NamedTuple):
    """What an upgrade did.

    ``created`` has the names of the tables that it created. ``before`` and ``after`` are the
    revisions of the tables, None if there were none. ``str()`` says it in one line.
    """

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
    """Create dblock's tables, or bring them to ``revision``. Return what it did.

    You can run it again, and in several processes at once: one migrates, and the others wait and
    find it done.

    ``target``, ``schema``, ``prefix`` and ``trust_server`` are as for :class:`dblock.Locks`.
    ``durability`` says what happens to the lock table in a crash:

    ``None``
        leave the table as it is.
    ``"durable"``
        leases survive. New tables are durable.
    ``"volatile"``
        only on PostgreSQL: no lease survives, and dblock grants nothing until the longest TTL that
        may still be out is over. In return acquiring waits for no disk.

    Raises Unavailable if the database cannot be reached. Raises Unsupported if the role lacks
    rights, if the database has no volatile tables, or if other migrations (Django's, or your own)
    created the tables and have to upgrade them.
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
    """Go back to ``revision``. ``"base"`` drops the tables, with all locks and fences.

    The other arguments, and what it raises, are as for :func:`upgrade`.
    """
    _run(command.downgrade, target, schema, prefix, revision, None, trust_server)


def sql(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    durability: str | None = None,
) -> str:
    """Return the SQL statements of :func:`upgrade`, without any I/O.

    Use it for a review, or for another migration tool.
    """
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
                "other migrations created dblock's tables here, Django's or your own: upgrade the "
                "tables with those"
            )
        alembic.attributes["connection"] = connection
        run(alembic, revision)
        now = _there(connection, schema, prefix)
        created = tuple(name for name in now if name not in there)
        return Upgraded(created, before, _revision(connection, schema, prefix, now))


def _there(connection: Connection, schema: str | None, prefix: str) -> list[str]:
    """Return the names of the tables that exist."""
    present = set(inspect(connection).get_table_names(schema))
    wanted = [table.name for table in tables(MetaData(), schema=schema, prefix=prefix).values()]
    return [name for name in wanted if name in present]


def _revision(
    connection: Connection, schema: str | None, prefix: str, there: Sequence[str]
) -> str | None:
    """Return the revision of the tables that are there; None if there are none."""
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
    """Yield a connection in a transaction, while nobody else migrates this database."""
    engine, dialect = resolve(
        target, timeouts=Timeouts(), schema=schema, prefix=prefix, trust_server=trust_server
    )
    # It connects as the engine does, but outside its pool, because SQLite's connection is altered.
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
    """Whether the tables exist, but other migrations created them."""
    look = inspect(connection)
    there = look.has_table(f"{prefix}schema", schema)
    return there and not look.has_table(f"{prefix}version", schema)


def _config(dialect: Dialect, durability: str | None) -> Config:
    if durability not in (None, *DURABILITIES):
        raise ValueError(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
    made = config(dialect.schema, dialect.prefix)
    if durability is not None:
        made.attributes["statements"] = dialect.set_durability(durability)
    return made


def _begin_immediately(engine: Engine, dialect: Dialect) -> None:
    """Make SQLite's DDL transactional. By default the driver commits before it."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.isolation_level = None
        until = clock.now() + PATIENCE
        while True:  # SQLite's own wait lasts a few seconds, and nothing interrupts it
            try:
                driver.execute("PRAGMA journal_mode = WAL")
                driver.execute("BEGIN IMMEDIATE")
                return
            except Exception as error:
                busy = dialect.adapter.classify(error) is Fault.BUSY
                if not busy or clock.now() >= until:
                    raise
