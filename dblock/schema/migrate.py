"""Run the migrations, from a checkout or from an installed package."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from ..connections import detached, first_line, is_driver_error
from ..dialects import Dialect
from ..errors import Unavailable, Unsupported
from ..protocol.faults import Fault, Trouble
from ..protocol.troubles import explain
from ..target import Target, resolve
from ..timeouts import Timeouts

DURABILITIES = ("durable", "volatile")

# Alembic keeps its environment in module globals.
_one_at_a_time = threading.Lock()


def migrations() -> Path:
    """Return the directory of the migrations (an Alembic script location)."""
    package = Path(__file__).parent.parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def upgrade(
    target: Target,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    revision: str = "head",
    durability: str | None = None,
) -> None:
    """Create dblock's tables, or bring them to ``revision``. Harmless when they are there.

    ``durability`` is what becomes of the lock table in a crash, None to leave it as it is.
    ``"durable"``, as it is at first: leases survive. ``"volatile"``, on PostgreSQL: none does, and
    for the longest TTL ever granted none is granted; in return acquiring waits for no disk.
    Raises Unsupported where there is no such table.

    Safe to run in several processes at once: one migrates, the others wait and find it done.
    """
    _run(command.upgrade, target, schema, prefix, revision, durability)


def downgrade(
    target: Target, *, schema: str | None = None, prefix: str = "dblock_", revision: str = "base"
) -> None:
    """Go back to ``revision``; ``"base"`` drops the tables, and with them every fence."""
    _run(command.downgrade, target, schema, prefix, revision)


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
    config = _config(dialect, durability)
    config.output_buffer = out
    config.attributes["dialect"] = engine.dialect.name
    with _one_at_a_time:
        command.upgrade(config, "head", sql=True)
    return out.getvalue()


def _run(
    run: Any,
    target: Target,
    schema: str | None,
    prefix: str,
    revision: str,
    durability: str | None = None,
) -> None:
    _, dialect = resolve(target, timeouts=Timeouts(), schema=schema, prefix=prefix)
    config = _config(dialect, durability)
    with migrating(target, schema=schema, prefix=prefix) as connection:
        config.attributes["connection"] = connection
        run(config, revision)


@contextlib.contextmanager
def migrating(
    target: Target, *, schema: str | None = None, prefix: str = "dblock_"
) -> Iterator[Connection]:
    """Yield a connection in a transaction, as the only one that migrates this database now."""
    engine, dialect = resolve(target, timeouts=Timeouts(), schema=schema, prefix=prefix)
    # Connections made as the engine makes them, but never put into its pool: SQLite's is altered.
    pool = engine.pool.recreate()
    apart = create_engine(engine.url, poolclass=NullPool, creator=lambda: detached(pool))
    if dialect.name == "sqlite":
        _begin_immediately(apart)
    enter, leave = dialect.migration_mutex()
    try:
        with _one_at_a_time, apart.connect() as connection, connection.begin():
            for statement in enter:
                if connection.exec_driver_sql(statement).scalar() == 0:
                    raise Unavailable("another migration is under way and did not end in time")
            yield connection
            for statement in leave:
                connection.exec_driver_sql(statement)
    except DBAPIError as error:
        raise _explain(dialect, error.orig or error) from error
    except Exception as error:
        if not is_driver_error(error):
            raise
        raise _explain(dialect, error) from error
    finally:
        if not isinstance(target, Engine):
            engine.dispose()


def _explain(dialect: Dialect, error: BaseException) -> BaseException:
    fault = dialect.classify(error)
    said = first_line(error)
    if fault is Fault.PRIVILEGE:
        return Unsupported(f"the database role may not create dblock's tables: {said}")
    if fault in (Fault.DISCONNECTED, Fault.UNREACHABLE, None):
        return Unavailable(f"the migration did not run: {said}")
    return explain(dialect, Trouble(fault, said))


def _config(dialect: Dialect, durability: str | None) -> Config:
    if durability not in (None, *DURABILITIES):
        raise ValueError(f"durability is one of {', '.join(DURABILITIES)}, not {durability!r}")
    config = Config()
    config.set_main_option("script_location", str(migrations()).replace("%", "%%"))
    config.attributes["schema"] = dialect.schema
    config.attributes["prefix"] = dialect.prefix
    if durability is not None:
        config.attributes["statements"] = dialect.set_durability(durability)
    return config


def _begin_immediately(engine: Engine) -> None:
    """Make SQLite's DDL transactional: the driver itself commits before it (PEP 249's legacy)."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.isolation_level = None
        driver.execute("PRAGMA journal_mode = WAL")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
