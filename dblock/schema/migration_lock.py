"""One migrator at a time. The lock needs no table, because the migration may create the tables.

The lock has a connection of its own. So no statement of the migration ends it, not a commit and not
an ``autocommit_block()``. It ends with that connection, however the migrator ends. dblock polls for
it and does not wait in the server: the snapshot of a waiting statement would delay CREATE INDEX
CONCURRENTLY.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from ..arguments import Seconds, check_name, check_wait
from ..dialects import Dialect, meet
from ..errors import LockLost, NotAcquired, Unavailable, Unsupported
from ..io.connecting import detached
from ..io.driver_errors import first_line, is_driver_error
from ..io.target import resolve
from ..policy import RetryPolicy, Timeouts
from ..protocol.explain import explain, misconfigured
from ..protocol.faults import Fault, StatementError
from ..system import clock
from .looking import MigrationPlace, Needed, alembic_needs


@contextlib.contextmanager
def migration_lock(
    connection: Connection,
    *,
    name: str = "migrations",
    wait: Seconds | None = None,
    needed: Needed | None = None,
    trust_server: bool = False,
) -> Iterator[None]:
    """Let one process migrate the database of ``connection`` while the others wait.

    In Alembic's ``env.py``::

        with migration_lock(connection), context.begin_transaction():
            context.run_migrations()

    The others continue as soon as the database is at their target revision. If it is already there,
    no process takes the lock. With Alembic dblock finds that out by itself, in the place of
    ``connection``: on its ``search_path``, or in the database that it uses. With another tool give
    ``needed``: a function that gets a connection to that place and returns whether there is
    anything to migrate.

    It works before dblock's tables exist, behind a transaction pooler, and with migrations that
    commit by themselves. If the block ends while ``connection`` is in a transaction, the lock lasts
    until that connection returns to its pool, because other processes cannot see the migration
    earlier.

    ``name`` is the name of the lock: migrations with different names may run at the same time. By
    default a database has one such lock. If the tenants of a PostgreSQL database have schemas that
    may be migrated at the same time, give each its own lock: ``name=f"migrations of {tenant}"``.
    ``wait`` is in seconds, None for ever. ``trust_server`` is as for :class:`dblock.Locks`.

    Raises NotAcquired if the wait is over. Raises LockLost at the end of the block if the lock
    ended before: then another process may have migrated at the same time.
    """
    check_name(name)
    engine, dialect = _resolve(connection.engine, trust_server)
    lock = contextlib.ExitStack()
    with lock:
        if needed is None:
            needed = alembic_needs(connection)
        with told(dialect):
            place = MigrationPlace(connection, dialect)
        check = lock.enter_context(
            alone(engine, dialect, name, wait=wait, needed=needed, place=place)
        )
        yield
        check()
        if connection.in_transaction():
            _keep_until_given_back(connection, lock.pop_all())


@contextlib.contextmanager
def alone(
    engine: Engine,
    dialect: Dialect,
    name: str,
    *,
    wait: Seconds | None = None,
    needed: Needed | None = None,
    place: MigrationPlace | None = None,
) -> Iterator[Callable[[], None]]:
    """Hold the migration lock; yield a function that raises LockLost if the lock has ended.

    Nothing is locked if nothing is ``needed``, in that ``place``.
    """
    patience = check_wait(wait)
    with contextlib.ExitStack() as stack:
        who: Callable[[], str] = str  # returns "": the holder is unknown
        if dialect.traits.one_writer:
            attempt = _file_lock(engine, stack)
            own = stack.enter_context(_own_connection(engine)) if needed is not None else None
        else:
            own = stack.enter_context(_own_connection(engine))
            attempt = _session_lock(own, dialect, name)
            who = partial(_holder, own, dialect, name)
        with told(dialect):
            if own is not None and place is not None:
                place.go(own)
                needed = needed and partial(_needed_there, place, needed)
            if not _wait(attempt, name, patience, own, needed, who):
                stack.close()
                attempt = _nothing
        yield lambda: _check(name, own, attempt)


def _needed_there(place: MigrationPlace, needed: Needed, own: Connection) -> bool:
    with place.stay(own):
        return needed(own)


def _check(name: str, own: Connection | None, attempt: Callable[[], bool]) -> None:
    if own is None or attempt is _nothing:
        return
    try:
        own.exec_driver_sql("SELECT 1")
    except DBAPIError as error:
        raise LockLost(
            f"the migration lock {name!r} was lost before the migration ended, and another process "
            f"may have migrated at the same time: {first_line(error.orig or error)}",
            name=name,
            reason="connection lost",
        ) from error


def _wait(
    attempt: Callable[[], bool],
    name: str,
    wait: float | None,
    own: Connection | None,
    needed: Needed | None,
    who: Callable[[], str],
) -> bool:
    """Try until this process has the lock; return False if there is nothing left to migrate."""
    policy, start, number = RetryPolicy(), clock.now(), 0
    while needed is None or own is None or needed(own):
        if attempt():
            return True
        number += 1
        elapsed = clock.now() - start
        pause = policy.sleep_after(name, number, elapsed, None if wait is None else wait - elapsed)
        if pause is None:
            raise NotAcquired(
                f"another migration is under way and did not end within {wait:g} s{who()}",
                name=name,
            )
        time.sleep(pause)
    return False


def _nothing() -> bool:
    return True


# --- the means: a session of the server's, or a file ---------------------------------------------


def _session_lock(own: Connection, dialect: Dialect, name: str) -> Callable[[], bool]:
    def attempt() -> bool:
        *before, last = dialect.migration_mutex(name)
        for statement in before:
            own.exec_driver_sql(statement)
        got = bool(own.exec_driver_sql(last).scalar())
        if not got:
            own.exec_driver_sql("ROLLBACK")
        return got

    with told(dialect):
        dialect.adapter.prepare_migrator(own.connection.driver_connection)
        meet(dialect)
    return attempt


def _holder(own: Connection, dialect: Dialect, name: str) -> str:
    """Name the lock's holder, for people, as far as the database shows it."""
    found = own.exec_driver_sql(dialect.migration_holder(name)).first()
    if found is None or found[0] is None:
        return ""
    session, role = found
    return f": session {session} has the lock" + (f", of {str(role)!r}" if role else "")


def _file_lock(engine: Engine, stack: contextlib.ExitStack) -> Callable[[], bool]:
    """Lock a file beside the database, because the migration needs the database's own lock.

    It is a database too, an empty one, so that SQLite locks it on every system. The file stays. If
    it was removed, one process could lock the old file and another a new one.
    """
    import sqlite3

    if not engine.url.database or engine.url.database == ":memory:":
        return _nothing
    path = f"{engine.url.database}-migrating"
    with contextlib.suppress(FileExistsError):  # SQLite's own file mode would shut out the group
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    file = sqlite3.connect(path, timeout=0, isolation_level=None)
    stack.callback(file.close)

    def attempt() -> bool:
        try:
            file.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    return attempt


@contextlib.contextmanager
def _own_connection(engine: Engine) -> Iterator[Connection]:
    """Yield a connection of the engine's, in autocommit mode and outside its pool."""
    apart = create_engine(
        engine.url,
        poolclass=NullPool,
        creator=lambda: detached(engine.pool),
        isolation_level="AUTOCOMMIT",
    )
    with apart.connect() as own:
        yield own


def _resolve(engine: Engine, trust_server: bool) -> tuple[Engine, Dialect]:
    """Return an engine that dblock can use: the user's, or its own if the driver is another one.

    An asyncio engine works as it is, because Alembic itself runs in a greenlet there.
    """
    place: dict[str, Any] = {"schema": None, "prefix": "dblock_", "trust_server": trust_server}
    place["timeouts"] = Timeouts()
    try:
        return resolve(engine, any_loop=True, **place)
    except Unsupported:
        url = engine.url.set(drivername=engine.dialect.name)
        return resolve(url, **place)


# --- the end -------------------------------------------------------------------------------------


def _keep_until_given_back(connection: Connection, held: contextlib.ExitStack) -> None:
    """Keep the lock until the user's connection is back in its pool: its transaction is over."""
    mine = [connection.connection.dbapi_connection]

    def given_back(dbapi_connection: Any, record: object) -> None:
        if mine and (dbapi_connection is mine[0] or dbapi_connection is None):
            mine.clear()
            held.close()

    event.listen(connection.engine, "checkin", given_back)


@contextlib.contextmanager
def told(dialect: Dialect) -> Iterator[None]:
    """Turn the database's errors into dblock's."""
    try:
        yield
    except DBAPIError as error:
        raise _explain(dialect, error.orig or error) from error
    except Exception as error:
        if not is_driver_error(error):
            raise
        raise _explain(dialect, error) from error


def _explain(dialect: Dialect, error: BaseException) -> BaseException:
    fault = dialect.adapter.classify(error)
    said = first_line(error)
    if dialect.adapter.misconfigured(error):
        return misconfigured(said)
    if fault is Fault.PRIVILEGE:
        return Unsupported(f"the database role lacks the rights to migrate: {said}")
    if fault is Fault.SCHEMA:
        return Unsupported(
            f"a table here has the name of one of dblock's tables, but is not dblock's: {said}. "
            "Rename it, or give dblock's tables another prefix"
        )
    if fault in (Fault.DISCONNECTED, Fault.UNREACHABLE, None):
        return Unavailable(f"the migration did not run: {said}")
    return explain(dialect, StatementError(fault, said))
