"""The user's data: a register for each name, and a log of what was written to it.

A write reads the register, thinks, and writes what follows: without a lock an update would be
lost. ``place`` counts the updates in the order of their commits, since each holds the register's
row until it has committed. A counter is a register too, whose value nobody reads first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Column, Integer, MetaData, String, Table, text
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from dblock.counters.counter import Counter

#: Registers beside those of the leases: what a leader writes, what is written under a row lock, and
#: what is counted. The last two have no fence, so theirs is 0.
LEADER = "leader"
ROW = "row"
COUNTER = "counter"

register = Table(
    "soak_register",
    MetaData(),
    Column("name", String(40), primary_key=True),
    Column("value", Integer, nullable=False),
    Column("place", Integer, nullable=False),
)

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
    for name in (*names, LEADER, ROW, COUNTER):
        connection.execute(text("INSERT INTO soak_register VALUES (:name, 0, 0)"), {"name": name})


def write(session: Session, id: str, name: str, fence: int, think: float = 0.0) -> None:
    """Change a name's register in the session's transaction, which the caller commits.

    Between what it reads and what it writes it thinks for some seconds.
    """
    found: dict[str, str | int] = {"id": id, "name": name, "fence": fence}
    read = "SELECT value FROM soak_register WHERE name = :name"
    seen: int = session.execute(text(read), found).scalar_one()
    time.sleep(think)
    found |= {"seen": seen, "value": seen + 1}
    update = "UPDATE soak_register SET value = :value, place = place + 1 WHERE name = :name"
    session.execute(text(update), found)
    _log(session, found)


def count(session: Session, id: str, counter: Counter) -> None:
    """Raise the counter by one, in the session's transaction: what has locked its row knows what
    it was."""
    counter.add(session, COUNTER, 1)
    found: dict[str, str | int] = {"id": id, "name": COUNTER, "fence": 0}
    session.execute(text("UPDATE soak_register SET place = place + 1 WHERE name = :name"), found)
    read = "SELECT value FROM soak_register WHERE name = :name"
    value: int = session.execute(text(read), found).scalar_one()
    _log(session, found | {"seen": value - 1, "value": value})


def _log(session: Session, found: dict[str, str | int]) -> None:
    placed = "SELECT place FROM soak_register WHERE name = :name"
    place: int = session.execute(text(placed), found).scalar_one()
    insert = "INSERT INTO soak_log VALUES (:id, :name, :fence, :seen, :value, :place)"
    session.execute(text(insert), found | {"place": place})


def read(connection: Connection) -> Ledger:
    """The registers and the log, of one moment: the connection is in REPEATABLE READ."""
    registers = connection.execute(text("SELECT name, value FROM soak_register"))
    rows = connection.execute(text("SELECT id, name, fence, seen, value, place FROM soak_log"))
    return Ledger({row.name: row.value for row in registers}, [Row(*row) for row in rows])
