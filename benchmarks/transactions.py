"""What is part of a transaction of the user's: a row lock, ``take``, ``once`` and a gate."""

from __future__ import annotations

from contextlib import ExitStack, closing
from itertools import count

from sqlalchemy import Column, Integer, MetaData, Table, update
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from dblock import Locks, fencing

from . import peers, raw
from .measure import Cycle

TICKET = Table("ticket", MetaData(), Column("id", Integer), Column("stock", Integer))
GATES = fencing.table(MetaData())

DBLOCK, BY_CORE, UPDATE = "dblock", "the same by SQLAlchemy Core", "raw UPDATE + COMMIT"
INSERT = "raw INSERT + COMMIT"


def borrowed(locks: Locks, engine: Engine, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """A row lock in a transaction of the user's."""
    connection = stack.enter_context(engine.connect())
    return {
        peers.ROW: {
            "acquire": lambda: locks.row("borrowed", on=connection).acquire(),
            "release": connection.commit,
        },
        peers.FOR_UPDATE: peers.pair(stack.enter_context(closing(raw.ForUpdate(url))), "row"),
    }


def take(locks: Locks, engine: Engine, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """``take`` and a commit on an SQLAlchemy Connection."""
    connection = stack.enter_context(engine.connect())
    by_core = stack.enter_context(engine.connect())
    bare = stack.enter_context(closing(raw.connect(url, autocommit=False)))
    counter = locks.counter(TICKET.c.stock, key=TICKET.c.id)
    statement = (
        update(TICKET).where(TICKET.c.id == 1, TICKET.c.stock >= 1).values(stock=TICKET.c.stock - 1)
    )
    return {
        DBLOCK: {"take": lambda: counter.take(connection, 1), "commit": connection.commit},
        UPDATE: raw.single_update(bare),
        BY_CORE: {"take": lambda: by_core.execute(statement), "commit": by_core.commit},
    }


def take_in_session(locks: Locks, engine: Engine, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """``take`` and a commit in an ORM session, which checks a connection out each time."""
    session = stack.enter_context(Session(engine))
    bare = stack.enter_context(closing(raw.connect(url, autocommit=False)))
    counter = locks.counter(TICKET.c.stock, key=TICKET.c.id)
    return {
        DBLOCK: {"take": lambda: counter.take(session, 1), "commit": session.commit},
        UPDATE: raw.single_update(bare),
    }


def once(locks: Locks, engine: Engine, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """A new key each time, and a result; against a row for each."""
    connection = stack.enter_context(engine.connect())
    bare = stack.enter_context(closing(raw.connect(url, autocommit=False)))
    keys = map(str, count())

    def call() -> None:
        with locks.once(connection, next(keys)) as made:
            made.result = {"order": 7}

    return {
        DBLOCK: {"once": call, "commit": connection.commit},
        INSERT: raw.single_insert(bare, keys),
    }


def gate(engine: Engine, url: str, stack: ExitStack) -> dict[str, Cycle]:
    """A fence that is larger each time."""
    GATES.create(engine)
    connection = stack.enter_context(engine.connect())
    bare = stack.enter_context(closing(raw.connect(url, autocommit=False)))
    fences = count(1)
    return {
        DBLOCK: {
            "gate": lambda: fencing.gate(connection, "report", next(fences)),
            "commit": connection.commit,
        },
        UPDATE: raw.single_update(bare),
    }
