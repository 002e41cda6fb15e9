"""SQLite's one writer: an atomic block that has written blocks dblock's own connections."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from django.db import connections

from ...dialects.query import Query
from ...protocol.faults import Fault, StatementError
from .engine import alias_of

if TYPE_CHECKING:
    from ...holding.database import Database


def obstacle(database: Database) -> str | None:
    """Return why a lease's statement would wait for the calling thread itself; None if not.

    It asks the database only in an atomic block on SQLite.
    """
    wrapper = connections[alias_of(database.engine)]
    if wrapper.vendor != "sqlite" or not wrapper.in_atomic_block:
        return None
    if not _is_in_use(database) or not _writes(wrapper.connection, database):
        return None
    in_test = any(getattr(block, "_from_testcase", False) for block in wrapper.atomic_blocks)
    what = "the transaction that TestCase keeps open" if in_test else "its atomic block"
    # A write that was rolled back to a savepoint counts too: SQLite keeps the file's lock.
    cure = (
        "use TransactionTestCase, or a lease in another database: using(alias).lease(...)"
        if in_test
        else "take leases before the block, or use the file after that"
    )
    return (
        f"this thread would wait for itself: {what} has written to this SQLite file, or has read "
        f"it without WAL, and a lease is written over another connection; {cure}"
    )


def _is_in_use(database: Database) -> bool:
    """Whether a transaction blocks a new writer: a writer's, or without WAL also a reader's."""
    try:
        connection = database.connections.take()
    except StatementError:
        return False  # the caller's next statement raises the error
    try:
        for sql in ("BEGIN EXCLUSIVE", "ROLLBACK"):
            connection.send(Query(sql, {}), database.timeouts.socket)
    except sqlite3.Error as error:
        busy = database.dialect.adapter.classify(error) is Fault.BUSY
        if not busy:
            database.connections.drop(connection)
            return False
    except BaseException:
        database.connections.drop(connection)
        raise
    else:
        busy = False
    database.connections.give(connection)
    return busy


def _writes(driver: sqlite3.Connection, database: Database) -> bool:
    """Whether a transaction is the writer: while it can write, no other one can."""
    ((before,),) = driver.execute("PRAGMA busy_timeout").fetchall()
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        driver.execute(f"UPDATE {database.dialect.table('lock')} SET fence = fence WHERE false")
    except sqlite3.Error:
        return False
    finally:
        driver.execute(f"PRAGMA busy_timeout = {before}")
    return True
