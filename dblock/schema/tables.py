"""The tables in their newest state."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    DateTime,
    Double,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    event,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import PrimaryKeyConstraint

from ..dialects.postgresql.witness import FIRST_EPOCH

_MYSQL = ("mysql", "mariadb")

# Compared byte by byte everywhere: no collation may equate names that differ.
NAME = (
    Text(collation="C").with_variant(mysql.VARBINARY(1020), *_MYSQL).with_variant(Text(), "sqlite")
)
TOKEN = String(32).with_variant(mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), *_MYSQL)
LABEL = String(255).with_variant(mysql.VARCHAR(255, charset="utf8mb4"), *_MYSQL)
# Tickets, in the order in which they came. Only PostgreSQL has it so far.
QUEUE = Text().with_variant(postgresql.ARRAY(Text()), "postgresql")
STRATEGY = String(8).with_variant(mysql.VARCHAR(8, charset="ascii"), *_MYSQL)
HOLDS = Text().with_variant(mysql.LONGTEXT(charset="ascii"), *_MYSQL)
FINGERPRINT = String(64).with_variant(
    mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), *_MYSQL
)
# JSON, in ASCII.
RESULT = Text().with_variant(mysql.LONGTEXT(charset="ascii"), *_MYSQL)
MOMENT = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *_MYSQL)


def tables(
    metadata: MetaData, *, schema: str | None = None, prefix: str = "dblock_"
) -> dict[str, Table]:
    """Add dblock's tables to ``metadata`` and return them by their short names."""
    lock = Table(
        f"{prefix}lock",
        metadata,
        Column("lock_name", NAME, nullable=False),
        Column("fence", BigInteger, nullable=False),
        Column("token", TOKEN),
        Column("owner", LABEL),
        Column("acquired_at", MOMENT),
        Column("expires_at", MOMENT),
        Column("waiters", QUEUE),
        PrimaryKeyConstraint("lock_name", name=f"{prefix}lock_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    # What a guard locks on InnoDB; other databases have other means and leave it empty.
    guard = Table(
        f"{prefix}guard",
        metadata,
        Column("lock_name", NAME, nullable=False),
        PrimaryKeyConstraint("lock_name", name=f"{prefix}guard_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    applied = Table(
        f"{prefix}applied",
        metadata,
        Column("idempotency_key", NAME, nullable=False),
        Column("applied_at", MOMENT, nullable=False),
        PrimaryKeyConstraint("idempotency_key", name=f"{prefix}applied_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    # Which calls were made, and what came of them: no result until one has ended.
    once = Table(
        f"{prefix}once",
        metadata,
        Column("idempotency_key", NAME, nullable=False),
        Column("token", TOKEN, nullable=False),
        Column("fingerprint", FINGERPRINT),
        Column("result", RESULT),
        Column("made_at", MOMENT, nullable=False),
        Column("expires_at", MOMENT, nullable=False),
        PrimaryKeyConstraint("idempotency_key", name=f"{prefix}once_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    # Whether PostgreSQL may have forgotten leases; other databases leave both empty.
    epoch = Table(
        f"{prefix}epoch",
        metadata,
        Column("id", Integer, nullable=False, autoincrement=False),
        Column("epoch", BigInteger, nullable=False),
        Column("cause", Text),
        Column("longest_ttl", Double),
        Column("server", Text),
        Column("writer", Text, nullable=False),
        Column("grants_from", MOMENT),
        PrimaryKeyConstraint("id", name=f"{prefix}epoch_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    witness = Table(
        f"{prefix}witness",
        metadata,
        Column("id", Integer, nullable=False, autoincrement=False),
        Column("epoch", BigInteger, nullable=False),
        Column("longest_ttl", Double, nullable=False),
        Column("grants_from", MOMENT, nullable=False),
        Column("writer", Text, nullable=False),
        Column("valid_until", MOMENT),
        PrimaryKeyConstraint("id", name=f"{prefix}witness_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    for table, statement in (
        # Room on each page for the next version of its rows, so that updates stay on it (HOT).
        # Not an argument of the table: SQLAlchemy 2.0 has none for it.
        (lock, "ALTER TABLE %(fullname)s SET (fillfactor = 50)"),
        (epoch, f"INSERT INTO %(fullname)s (id, epoch, server, writer) {FIRST_EPOCH}"),
        (witness, "ALTER TABLE %(fullname)s SET UNLOGGED"),
    ):
        ddl = DDL(statement)  # type: ignore[no-untyped-call]
        event.listen(table, "after_create", ddl.execute_if(dialect="postgresql"))
    # Who waits for what, and what it holds meanwhile; written only under contention.
    waiter = Table(
        f"{prefix}waiter",
        metadata,
        Column("id", TOKEN, nullable=False),
        Column("lock_name", NAME, nullable=False),
        Column("strategy", STRATEGY, nullable=False),
        Column("owner", LABEL, nullable=False),
        Column("since", MOMENT, nullable=False),
        Column("expires_at", MOMENT, nullable=False),
        Column("holds", HOLDS),
        PrimaryKeyConstraint("id", name=f"{prefix}waiter_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    # The last run of each job, and with slots that of each of its slots.
    run = Table(
        f"{prefix}run",
        metadata,
        Column("lock_name", NAME, nullable=False),
        Column("slot", NAME, nullable=False),
        Column("fence", BigInteger, nullable=False),
        Column("owner", LABEL),
        Column("started_at", MOMENT, nullable=False),
        Column("ended_at", MOMENT),
        Column("exit_status", Integer),
        PrimaryKeyConstraint("lock_name", "slot", name=f"{prefix}run_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    version = Table(
        f"{prefix}schema",
        metadata,
        Column("version", Integer, nullable=False),
        Column("revision", Integer),
        schema=schema,
        mysql_engine="InnoDB",
    )
    return {
        "lock": lock,
        "guard": guard,
        "applied": applied,
        "once": once,
        "waiter": waiter,
        "run": run,
        "epoch": epoch,
        "witness": witness,
        "schema": version,
    }
