"""Run the migrations, from a checkout or from an installed package."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, create_engine, event, inspect, select, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from ..arguments import check_flag
from ..dialects import Dialect
from ..errors import Unsupported
from ..io.connecting import detached
from ..io.target import resolve
from ..policy import Timeouts
from ..protocol.faults import Fault
from ..protocol.schema_version import SCHEMA_VERSION, Schema
from ..system import clock
from .migration_lock import alone, told
from .revisions import config, printed
from .tables import tables

if TYPE_CHECKING:
    from ..io.target import Target

DURABILITIES = ("durable", "volatile")
# How many seconds to wait for another process that creates or upgrades dblock's tables.
PATIENCE = 60.0
HEAD = f"dblock_{SCHEMA_VERSION:04d}"
_ANOTHERS = (
    "other migrations created dblock's tables here, Django's or your own: upgrade the tables with "
    "those"
)
# Alembic keeps its environment in module globals.
_one_at_a_time = threading.Lock()


class Upgraded(NamedTuple):
    """The result of an upgrade.

    ``created`` has the names of the tables that it created. ``before`` and ``after`` are the
    revisions of the tables, None if there were none. ``functions`` has the names of the
    SQL functions that are there now. ``str()`` says it in one line.
    """

    created: tuple[str, ...]
    before: str | None
    after: str | None
    functions: tuple[str, ...] = ()

    def __str__(self) -> str:
        made = f", with the functions {', '.join(self.functions)}" if self.functions else ""
        if self.created and self.before is None:
            return f"created {', '.join(self.created)}, at revision {self.after}{made}"
        if self.before == self.after:
            return f"already at revision {self.after}{made}"
        return f"upgraded from revision {self.before} to {self.after}{made}"


class Downgraded(NamedTuple):
    """The result of a downgrade.

    ``dropped`` has the names of the tables that it dropped. ``before`` and ``after`` are the
    revisions of the tables, None if there were none, or only some. ``str()`` says it in one line.
    """

    dropped: tuple[str, ...]
    before: str | None
    after: str | None

    def __str__(self) -> str:
        found = "" if self.before else ", which an upgrade that was cut off had left"
        if self.after is None:
            there_were_none = "dblock has no tables here"
            return f"dropped {', '.join(self.dropped)}{found}" if self.dropped else there_were_none
        if self.before == self.after:
            return f"already at revision {self.after}"
        return f"downgraded from revision {self.before} to {self.after}"


def upgrade(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    revision: str = "head",
    durability: str | None = None,
    functions: bool | None = None,
    trust_server: bool = False,
) -> Upgraded:
    """Create dblock's tables, or upgrade them to ``revision``. Return the result.

    You can run it again, and in several processes at the same time: one migrates, and the others
    wait until it is done. If it was interrupted, or a downgrade was, run it again: it completes the
    rest.

    ``target``, ``schema``, ``prefix`` and ``trust_server`` are as for :class:`dblock.Locks`.
    ``durability`` decides the fate of the lock table in a crash:

    ``None``
        leave the table as it is.
    ``"durable"``
        leases survive. New tables are durable.
    ``"volatile"``
        only on PostgreSQL: no lease survives, and dblock grants nothing until the longest TTL that
        a lost lease may have is over. In return an acquire does not wait for the disk.

    ``functions`` decides about the SQL functions, by which programs in other languages use the same
    locks:

    ``None``
        where they are, bring them up to this version.
    ``True``
        only on PostgreSQL: create them, beside the tables.
    ``False``
        drop them. The fences that have passed their gate stay.

    Raises Unavailable if the database cannot be reached. Raises Unsupported if the role lacks
    rights, if the database has no volatile tables or no functions, or if other migrations
    (Django's, or your own) created the tables and have to upgrade them.
    """
    _check(durability, functions)
    if functions is not None and revision != "head":
        raise ValueError(f"functions= works on the newest tables: leave out revision={revision!r}")
    _, dialect = resolve(target, timeouts=Timeouts(), schema=schema, prefix=prefix)
    # Refused before any I/O, if the database has no such tables, or no functions.
    statements = dialect.set_durability(durability) if durability else ()
    if functions:
        dialect.create_functions()
    place: dict[str, Any] = {"schema": schema, "prefix": prefix, "trust_server": trust_server}
    with migrating(target, **place) as connection:
        ours = Ours(connection, schema, prefix)
        there, before = ours.names(), ours.revision()
        if ours.are_anothers():
            if revision != "head" or before != HEAD or durability:
                raise Unsupported(_ANOTHERS)
        else:
            if ours.half_downgraded():
                command.stamp(_config(dialect, connection), before or "base")
            command.upgrade(_config(dialect, connection), revision)
        for statement in statements:
            connection.exec_driver_sql(statement)
        if functions is False:
            _run(connection, dialect.drop_functions())
        elif functions or (revision == "head" and _functions(connection, dialect)):
            _run(connection, dialect.create_functions())
        created = tuple(name for name in ours.names() if name not in there)
        return Upgraded(created, before, ours.revision(), _functions(connection, dialect))


def downgrade(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    revision: str = "base",
    trust_server: bool = False,
) -> Downgraded:
    """Go back to ``revision``; return the result. ``"base"`` drops the tables, with all locks and
    fences, and also the remains of an interrupted upgrade. It drops the SQL functions in any case.

    The other arguments, and the errors, are the same as for :func:`upgrade`.
    """
    _, dialect = resolve(target, timeouts=Timeouts(), schema=schema, prefix=prefix)
    place: dict[str, Any] = {"schema": schema, "prefix": prefix, "trust_server": trust_server}
    with migrating(target, **place) as connection:
        ours = Ours(connection, schema, prefix)
        there, before = ours.names(), ours.revision()
        if ours.are_anothers():
            raise Unsupported(_ANOTHERS)
        if there:  # the functions need the newest tables
            _run(connection, dialect.drop_functions())
            _run(connection, dialect.drop_gate() if revision == "base" else ())
        command.downgrade(_config(dialect, connection), revision)
        if revision == "base":
            ours.drop()
        now = ours.names()
        dropped = tuple(name for name in there if name not in now)
        return Downgraded(dropped, before, ours.revision())


def sql(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    durability: str | None = None,
    functions: bool | None = None,
) -> str:
    """Return the SQL statements of :func:`upgrade`, without any I/O.

    Use it for a review, or for another migration tool. You can run the statements again after an
    interruption.
    """
    _check(durability, functions)
    engine, dialect = resolve(target, timeouts=Timeouts(), schema=schema, prefix=prefix)
    made = printed(engine.dialect, HEAD, schema=schema, prefix=prefix)
    made += dialect.set_durability(durability) if durability else ()
    if functions is not None:
        made += dialect.create_functions() if functions else dialect.drop_functions()
    if dialect.undoes_ddl:
        made = ["BEGIN", *made, "COMMIT"]
    return "".join(f"{statement};\n\n" for statement in made)


@contextlib.contextmanager
def migrating(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    trust_server: bool = False,
) -> Iterator[Connection]:
    """Yield a connection in a transaction, while no other process migrates this database."""
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
        if dialect.traits.one_writer:
            _begin_immediately(apart, dialect)
        else:
            stack.enter_context(alone(engine, dialect, "dblock", wait=PATIENCE))
        connection = stack.enter_context(apart.connect())
        stack.enter_context(connection.begin())
        for statement in dialect.migration_settings():
            connection.exec_driver_sql(statement)
        yield connection


def _check(durability: str | None, functions: bool | None) -> None:
    if durability not in (None, *DURABILITIES):
        raise ValueError(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
    if functions is not None:
        check_flag("functions", functions)


def _functions(connection: Connection, dialect: Dialect) -> tuple[str, ...]:
    """Return the names of the functions that are there."""
    question = dialect.find_functions()
    return () if question is None else tuple(connection.scalars(text(question)))


def _run(connection: Connection, statements: Iterable[str]) -> None:
    """Run statements as they are: a function's text may have any sign."""
    for statement in statements:
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _config(dialect: Dialect, connection: Connection) -> Config:
    made = config(dialect.schema, dialect.prefix)
    made.attributes["connection"] = connection
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


class Ours:
    """The state of dblock's tables before a migration: which exist, their origin and revision.

    It reads them on the connection that migrates them.
    """

    def __init__(self, connection: Connection, schema: str | None, prefix: str) -> None:
        self._connection = connection
        self._schema = schema
        self._prefix = prefix
        self._tables = tables(MetaData(), schema=schema, prefix=prefix)

    def names(self) -> list[str]:
        """Return the names of the tables that exist."""
        wanted = [table.name for table in self._tables.values()]
        return [name for name in wanted if self._is_there(name)]

    def revision(self) -> str | None:
        """Return the revision of the tables; None if there are none, or not all of the first."""
        if not self._is_there(self._tables["schema"].name):
            return None
        every = select(text("*")).select_from(self._tables["schema"])
        found = Schema.of(self._connection.execute(every).first()).revision
        return f"dblock_{found:04d}" if found else None

    def are_anothers(self) -> bool:
        """Whether other migrations created the tables. Alembic's begin with a version table."""
        return not self._is_there(f"{self._prefix}version") and bool(self.names())

    def half_downgraded(self) -> bool:
        """Whether a downgrade was cut off: the tables' own record is older than Alembic's."""
        opts = {"version_table": f"{self._prefix}version", "version_table_schema": self._schema}
        context = MigrationContext.configure(self._connection, opts=opts)
        return (self.revision() or "") < (context.get_current_revision() or "")

    def drop(self) -> None:
        """Drop the tables that exist."""
        names = self.names()
        for table in self._tables.values():
            if table.name in names:
                table.drop(self._connection)

    def _is_there(self, name: str) -> bool:
        # Without a schema also elsewhere on PostgreSQL's search_path, as in all statements.
        return inspect(self._connection).has_table(name, self._schema)
