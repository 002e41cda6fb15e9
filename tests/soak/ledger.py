"""The user's data: a register for each name, and a log of what was written to it.

A write reads the register, thinks, and writes what follows: without a lock an update would be
lost. ``place`` counts the updates in the order of their commits, since each holds the register's
row until it has committed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

CREATE = (
    "CREATE TABLE soak_register (name VARCHAR(40) PRIMARY KEY, value INTEGER NOT NULL, "
    "place INTEGER NOT NULL)",
    "CREATE TABLE soak_log (id VARCHAR(60) PRIMARY KEY, name VARCHAR(40) NOT NULL, "
    "fence BIGINT NOT NULL, seen INTEGER NOT NULL, value INTEGER NOT NULL, "
    "place INTEGER NOT NULL)",
    "CREATE TABLE soak_yardstick (number INTEGER NOT NULL)",
    "INSERT INTO soak_yardstick VALUES (0)",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One committed write: ``seen`` is the value it read, ``value`` the one it wrote."""

    id: str
    name: str
    fence: int
    seen: int
    value: int
    place: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is there in the end."""

    registers: dict[str, int]
    rows: list[Row]


def create(connection: Connection, names: Sequence[str]) -> None:
    for statement in CREATE:
        connection.execute(text(statement))
    for name in names:
        connection.execute(text("INSERT INTO soak_register VALUES (:name, 0, 0)"), {"name": name})


def write(session: Session, id: str, name: str, fence: int) -> None:
    """Change a name's register in the session's transaction, which the caller commits."""
    found: dict[str, str | int] = {"id": id, "name": name, "fence": fence}
    read = "SELECT value FROM soak_register WHERE name = :name"
    seen: int = session.execute(text(read), found).scalar_one()
    os.sched_yield()
    found |= {"seen": seen, "value": seen + 1}
    update = "UPDATE soak_register SET value = :value, place = place + 1 WHERE name = :name"
    session.execute(text(update), found)
    placed = "SELECT place FROM soak_register WHERE name = :name"
    found["place"] = session.execute(text(placed), found).scalar_one()
    insert = "INSERT INTO soak_log VALUES (:id, :name, :fence, :seen, :value, :place)"
    session.execute(text(insert), found)


def read(connection: Connection) -> Ledger:
    """The registers and the log, of one moment: the connection is in REPEATABLE READ."""
    registers = connection.execute(text("SELECT name, value FROM soak_register"))
    rows = connection.execute(text("SELECT id, name, fence, seen, value, place FROM soak_log"))
    return Ledger({row.name: row.value for row in registers}, [Row(*row) for row in rows])
