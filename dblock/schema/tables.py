"""The tables in their newest state; and a filter that keeps Alembic's autogenerate from dropping
them."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any
from uuid import uuid4

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

from ..dialects.postgresql.arrivals import triggers
from ..dialects.postgresql.witness import FIRST_EPOCH

_MYSQL = ("mysql", "mariadb")
#: The options of a table on MySQL and MariaDB, by SQLAlchemy's names of both. In the older row
#: formats, which may be the server's preset, a name is too long for a key.
INNODB: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in _MYSQL
    for option, value in {"engine": "InnoDB", "row_format": "DYNAMIC"}.items()
}

# Every database compares names byte by byte: no collation may equate different names.
NAME = (
    Text(collation="C").with_variant(mysql.VARBINARY(1020), *_MYSQL).with_variant(Text(), "sqlite")
)
# PostgreSQL compares texts as such. For a varchar it looks for what fits better first.
TOKEN = (
    String(32)
    .with_variant(mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), *_MYSQL)
    .with_variant(Text(), "postgresql")
)
LABEL = (
    String(255)
    .with_variant(mysql.VARCHAR(255, charset="utf8mb4"), *_MYSQL)
    .with_variant(Text(), "postgresql")
)
# Tickets, in the order in which they came.
QUEUE = Text().with_variant(postgresql.ARRAY(Text()), "postgresql")
READERS = Text().with_variant(mysql.LONGTEXT(charset="ascii", collation="ascii_bin"), *_MYSQL)
STRATEGY = (
    String(8)
    .with_variant(mysql.VARCHAR(8, charset="ascii"), *_MYSQL)
    .with_variant(Text(), "postgresql")
)
HOLDS = Text().with_variant(mysql.LONGTEXT(charset="ascii"), *_MYSQL)
FINGERPRINT = (
    String(64)
    .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), *_MYSQL)
    .with_variant(Text(), "postgresql")
)
# In ASCII.
JSON = Text().with_variant(mysql.LONGTEXT(charset="ascii"), *_MYSQL)
MOMENT = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *_MYSQL)


def tables(
    metadata: MetaData, *, schema: str | None = None, prefix: str = "dblock_"
) -> dict[str, Table]:
    """Add dblock's tables to ``metadata``; return them by their names without the prefix.

    Give ``Locks`` the same ``schema`` and ``prefix``.
    """
    lock = Table(
        f"{prefix}lock",
        metadata,
        Column("lock_name", NAME, nullable=False, comment="The name."),
        Column(
            "fence",
            BigInteger,
            nullable=False,
            comment="The number of the newest hold. It only grows.",
        ),
        Column(
            "token",
            TOKEN,
            comment="The secret of the holder's process; NULL while the name is free.",
        ),
        Column("owner", LABEL, comment="Who holds it: host, process, or what label= says."),
        Column("acquired_at", MOMENT, comment="When the hold began."),
        Column("expires_at", MOMENT, comment="When the lease runs out if nobody renews it."),
        Column("waiters", QUEUE, comment="Tickets of the queue, first come first."),
        Column("readers", READERS, comment="Tokens of those who share the hold, its own first."),
        PrimaryKeyConstraint("lock_name", name=f"{prefix}lock_pkey"),
        comment="One row for each name that was ever locked.",
        schema=schema,
        **INNODB,
    )
    # A guard locks its rows on InnoDB. The other databases leave the table empty.
    guard = Table(
        f"{prefix}guard",
        metadata,
        Column("lock_name", NAME, nullable=False, comment="The name."),
        Column(
            "writes",
            BigInteger,
            comment="How often locks and guards have written this row, in a Galera cluster.",
        ),
        PrimaryKeyConstraint("lock_name", name=f"{prefix}guard_pkey"),
        comment="What a guard locks in a user's transaction (MariaDB).",
        schema=schema,
        **INNODB,
    )
    applied = Table(
        f"{prefix}applied",
        metadata,
        Column("idempotency_key", NAME, nullable=False, comment="The key."),
        Column("applied_at", MOMENT, nullable=False, comment="When the change was made."),
        PrimaryKeyConstraint("idempotency_key", name=f"{prefix}applied_pkey"),
        comment="Idempotency keys of counter changes.",
        schema=schema,
        **INNODB,
    )
    # Which calls were made, and what came of them: no result until one has ended.
    once = Table(
        f"{prefix}once",
        metadata,
        Column("idempotency_key", NAME, nullable=False, comment="The key of the call."),
        Column("token", TOKEN, nullable=False, comment="Which transaction recorded the call."),
        Column(
            "fingerprint",
            FINGERPRINT,
            comment="A hash of what was asked for; NULL if it was not given.",
        ),
        Column("result", JSON, comment="What the call returned, as JSON; NULL until it has ended."),
        Column("made_at", MOMENT, nullable=False, comment="When the call was recorded."),
        Column("expires_at", MOMENT, nullable=False, comment="Until when the record counts."),
        PrimaryKeyConstraint("idempotency_key", name=f"{prefix}once_pkey"),
        comment="Calls that are made once, and what came of them.",
        schema=schema,
        **INNODB,
    )
    # What names carry beside their leases. It outlives the lease: the fence says whose it was.
    value = Table(
        f"{prefix}value",
        metadata,
        Column("lock_name", NAME, nullable=False, comment="The name."),
        Column(
            "fence",
            BigInteger,
            nullable=False,
            comment="The fence of the hold that wrote the value; 0 if none did.",
        ),
        Column("value", JSON, comment="The value, as JSON."),
        Column("written_at", MOMENT, nullable=False, comment="When it was written."),
        PrimaryKeyConstraint("lock_name", name=f"{prefix}value_pkey"),
        comment="Values of names: what a leader proclaims, the limit of a semaphore.",
        schema=schema,
        **INNODB,
    )
    # They show whether PostgreSQL may have forgotten leases. The other databases leave them empty.
    epoch = Table(
        f"{prefix}epoch",
        metadata,
        Column("id", Integer, nullable=False, autoincrement=False, comment="Always 1."),
        Column(
            "epoch",
            BigInteger,
            nullable=False,
            comment="A number that grows with each crash or failover.",
        ),
        Column("cause", Text, comment="Why the newest epoch began."),
        Column("longest_ttl", Double, comment="The longest TTL of a lease so far, in seconds."),
        Column("server", Text, comment="The server and its timeline that grant leases."),
        Column("writer", Text, nullable=False, comment="The transaction that wrote this row."),
        Column("grants_from", MOMENT, comment="When the pause after a crash ends."),
        PrimaryKeyConstraint("id", name=f"{prefix}epoch_pkey"),
        comment="Since when leases are granted without a gap (PostgreSQL).",
        schema=schema,
        **INNODB,
    )
    witness = Table(
        f"{prefix}witness",
        metadata,
        Column("id", Integer, nullable=False, autoincrement=False, comment="Always 1."),
        Column(
            "epoch", BigInteger, nullable=False, comment="The epoch that leases are granted in."
        ),
        Column(
            "longest_ttl",
            Double,
            nullable=False,
            comment="The longest TTL that may be granted, in seconds.",
        ),
        Column(
            "grants_from",
            MOMENT,
            nullable=False,
            comment="When the first lease of this epoch may be granted.",
        ),
        Column("writer", Text, nullable=False, comment="The transaction that wrote this row."),
        Column("valid_until", MOMENT, comment="Until when longest_ttl is known to be right."),
        PrimaryKeyConstraint("id", name=f"{prefix}witness_pkey"),
        comment="A copy of the epoch that a crash empties (PostgreSQL).",
        schema=schema,
        **INNODB,
    )
    for table, statement in (
        # Leaves room on each page for new versions of its rows, so that updates stay there (HOT).
        # SQLAlchemy 2.0 has no table argument for it.
        # And a long queue stays in its row, uncompressed.
        (lock, "ALTER TABLE %(fullname)s SET (fillfactor = 50, toast_tuple_target = 8160)"),
        (epoch, f"INSERT INTO %(fullname)s (id, epoch, server, writer) {FIRST_EPOCH}"),
        (witness, "ALTER TABLE %(fullname)s SET UNLOGGED"),
        *((lock, text.replace("%", "%%")) for text in triggers("lock", schema, prefix)),
        *((epoch, text.replace("%", "%%")) for text in triggers("epoch", schema, prefix)),
    ):
        ddl = DDL(statement)  # type: ignore[no-untyped-call]
        event.listen(table, "after_create", ddl.execute_if(dialect="postgresql"))
    # Who waits for what, and what it holds meanwhile. Written only under contention.
    waiter = Table(
        f"{prefix}waiter",
        metadata,
        Column("id", TOKEN, nullable=False, comment="The waiter's own number."),
        Column("lock_name", NAME, nullable=False, comment="The name that it waits for."),
        Column("strategy", STRATEGY, nullable=False, comment="lease or row."),
        Column(
            "owner", LABEL, nullable=False, comment="Who waits: host, process, or what label= says."
        ),
        Column("since", MOMENT, nullable=False, comment="When the wait began."),
        Column(
            "expires_at",
            MOMENT,
            nullable=False,
            comment="When the waiter counts as dead unless it says more.",
        ),
        Column("holds", HOLDS, comment="What it holds meanwhile, to find deadlocks."),
        PrimaryKeyConstraint("id", name=f"{prefix}waiter_pkey"),
        comment="Who waits for a lock.",
        schema=schema,
        **INNODB,
    )
    # The last run of each job; for a job with slots, the last run of each slot.
    run = Table(
        f"{prefix}run",
        metadata,
        Column("lock_name", NAME, nullable=False, comment="The job's name."),
        Column(
            "slot",
            NAME,
            nullable=False,
            comment="The slot, such as a day; empty for the last run of all.",
        ),
        Column(
            "fence", BigInteger, nullable=False, comment="The fence of the lease that it ran under."
        ),
        Column("owner", LABEL, comment="Who ran it."),
        Column("started_at", MOMENT, nullable=False, comment="When it began."),
        Column(
            "ended_at", MOMENT, comment="When it ended; NULL while it runs, or if it was killed."
        ),
        Column("exit_status", Integer, comment="The exit status of its command."),
        PrimaryKeyConstraint("lock_name", "slot", name=f"{prefix}run_pkey"),
        comment="The last run of each job, and of each slot of it.",
        schema=schema,
        **INNODB,
    )
    version = Table(
        f"{prefix}schema",
        metadata,
        Column(
            "version",
            Integer,
            nullable=False,
            autoincrement=False,
            comment="The oldest code that works with these tables.",
        ),
        Column("revision", Integer, comment="The newest revision that was applied."),
        Column(
            "identity",
            TOKEN,
            default=lambda: uuid4().hex,
            comment="A random number that tells these tables apart.",
        ),
        PrimaryKeyConstraint("version", name=f"{prefix}schema_pkey"),
        comment="How far dblock's tables have been brought.",
        schema=schema,
        **INNODB,
    )
    return {
        "lock": lock,
        "guard": guard,
        "applied": applied,
        "once": once,
        "value": value,
        "waiter": waiter,
        "run": run,
        "epoch": epoch,
        "witness": witness,
        "schema": version,
    }


IncludeName = Callable[[str | None, str, Any], bool]


def leave_ours(
    other: IncludeName | None = None,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    known: Container[str] = (),
) -> IncludeName:
    """Return an ``include_name`` for Alembic's ``context.configure`` that skips dblock's tables.

    Use it if your MetaData does not have these tables. Without it autogenerate would drop them.
    ``other`` is your own ``include_name``: it decides about all other names. ``schema`` and
    ``prefix`` say where dblock's tables are. Alembic still compares the tables that are in
    ``known``, for example ``metadata.tables``.
    """
    ours = {table.name for table in tables(MetaData(), prefix=prefix).values()}
    ours |= {f"{prefix}version", f"{prefix}fence"}

    def include_name(name: str | None, kind: str, parents: Any) -> bool:
        key = f"{schema}.{name}" if schema else name
        # Alembic gives no name for the connection's own schema, and that may be dblock's.
        here = kind == "table" and parents.get("schema_name") in (None, schema)
        if here and name in ours and key not in known:
            return False
        return other is None or other(name, kind, parents)

    return include_name
