"""The sessions that row locks are in, and their end; and a database that is away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dblock import Unavailable
from dblock.io.driver import Driver
from tests.conftest import Database
from tests.servers import FAMILY, execute

# How to end the sessions of the database's users; SQLite has no sessions.
END = {"postgresql": "SELECT pg_terminate_backend({})", **dict.fromkeys(FAMILY, "KILL {}")}


def in_transactions(db: Database) -> list[int]:
    """The sessions in transactions of this database."""
    if db.kind == "postgresql":
        idle = "state = 'idle in transaction' AND datname = current_database()"
        return [pid for (pid,) in execute(db.url, f"SELECT pid FROM pg_stat_activity WHERE {idle}")]
    ours = execute(db.url, "SELECT id FROM information_schema.processlist WHERE db = database()")
    # Not innodb_trx, which for a moment shows what it has shown last.
    ((_, _, status),) = execute(db.url, "SHOW ENGINE INNODB STATUS")
    active = re.findall(
        r"^---TRANSACTION .* ACTIVE .*\n(?:(?!---).*\n)+?.*thread id (\d+),", status, re.M
    )
    return [session for (session,) in ours if str(session) in active]


def end_sessions(db: Database) -> int:
    """End those; return how many there were."""
    if db.server is None:
        return 0
    found = in_transactions(db)
    for session in found:
        execute(db.server.url, END[db.kind].format(session))
    return len(found)


@contextmanager
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No statement is sent."""

    def refuse(*_: object) -> None:
        raise Unavailable("as if")

    with monkeypatch.context() as broken:
        broken.setattr(Driver, "_run", refuse)
        yield
