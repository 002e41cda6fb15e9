"""The checks for MariaDB. They look at global settings: dblock's own sessions change some."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..dialects.look_alikes import recognise
from ..dialects.values import text
from .common import TABLES
from .finding import RESTORE_KEY, Check, Finding, Patient, note, ok, trusted, wrong
from .mariadb_replication import replication

# From this version on dblock's statements can switch innodb_snapshot_isolation off.
SPARED = (11, 4, 2)
# Seconds. With less, the server ends connections that are idle between two renewals.
SHORT_WAIT = 60


def server(patient: Patient) -> Iterator[Finding]:
    ((version, comment, read_only, transactions),) = patient.ask(
        "SELECT VERSION(), @@version_comment, @@GLOBAL.read_only, @@GLOBAL.tx_read_only"
    )
    other = recognise(text(version), patient.dialect.adapter.real, text(comment))
    if other is not None:
        yield trusted(other)
    elif transactions and not read_only:
        yield wrong(
            "server",
            f"{version}, transaction_read_only = ON",
            "no lock can be taken",
            _set("tx_read_only", "OFF"),
        )
    elif read_only:
        yield wrong(
            "server",
            f"{version}, read-only",
            "no lock can be taken",
            "give dblock the URL of the primary",
        )
    else:
        yield ok("server", str(version))


def isolation(patient: Patient) -> Iterator[Finding]:
    ((level,),) = patient.ask("SELECT @@GLOBAL.tx_isolation")
    if level == "READ-COMMITTED":
        yield ok("isolation", level)
    else:
        follows = (
            "in your own transaction a plain SELECT may return data from before you got the lock"
        )
        if _insists(patient):
            follows += (
                ", and where a statement of yours changes a row that is newer than your first "
                "SELECT, the server undoes the whole transaction (innodb_snapshot_isolation = ON)"
            )
        yield note(
            "isolation",
            f"{level} by default",
            follows,
            "take the lock before the first SELECT, or read with FOR UPDATE, or use READ COMMITTED",
        )


def rollbacks(patient: Patient) -> Iterator[Finding]:
    ((whole,),) = patient.ask("SELECT @@GLOBAL.innodb_rollback_on_timeout")
    if whole:
        yield wrong(
            "rollbacks",
            "innodb_rollback_on_timeout = ON",
            "if a row lock or a guard is refused in your own transaction, the server silently "
            "undoes the whole transaction",
            "put this into the server's configuration, and restart it:\n"
            "innodb_rollback_on_timeout = OFF",
        )
    elif _insists(patient) and _version(patient) < SPARED:
        yield wrong(
            "rollbacks",
            "innodb_snapshot_isolation = ON before MariaDB 11.4.2",
            "if a row lock, a guard or a counter meets a row that is newer than what your own "
            "transaction has read, the server undoes the whole transaction",
            _set("innodb_snapshot_isolation", "OFF"),
        )
    else:
        yield ok("rollbacks", "a refused statement undoes only itself")


def _insists(patient: Patient) -> bool:
    """Whether the server refuses a transaction's change of a row newer than its snapshot."""
    values = patient.ask(
        "SELECT variable_value FROM information_schema.global_variables "
        "WHERE variable_name = 'innodb_snapshot_isolation'"  # not every server has it
    )
    return any(value == "ON" for (value,) in values)


def _version(patient: Patient) -> tuple[int, ...]:
    ((version,),) = patient.ask("SELECT VERSION()")
    return tuple(int(part) for part in re.findall(r"\d+", text(version))[:3])


def binary_log(patient: Patient) -> Iterator[Finding]:
    ((log, kind),) = patient.ask("SELECT @@GLOBAL.log_bin, @@GLOBAL.binlog_format")
    if log and kind == "STATEMENT":
        yield wrong(
            "binary log",
            "binlog_format = STATEMENT",
            "no lock can be taken: with such a log MariaDB refuses READ COMMITTED, which "
            "dblock's sessions use",
            _set("binlog_format", "MIXED"),
        )
    else:
        yield ok("binary log", str(kind) if log else "none")


def durability(patient: Patient) -> Iterator[Finding]:
    ((flush,),) = patient.ask("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit")
    if int(flush) in (1, 3):
        yield ok("durability", f"innodb_flush_log_at_trx_commit = {flush}")
    else:
        yield wrong(
            "durability",
            f"innodb_flush_log_at_trx_commit = {flush}",
            "a crash of the server can lose the grants of the last second: two may hold a name",
            _set("innodb_flush_log_at_trx_commit", "1"),
        )


def tables_kind(patient: Patient) -> Iterator[Finding]:
    """Check the engine, the collation and the index of each table."""
    dialect = patient.dialect
    where = f"table_schema = {'%(schema)s' if dialect.schema else 'DATABASE()'}"
    for name in TABLES:
        table = dialect.prefix + name
        asked = {"table": table} | ({"schema": dialect.schema} if dialect.schema else {})
        engines = patient.ask(
            f"SELECT engine FROM information_schema.tables WHERE {where} "
            "AND table_name = %(table)s",
            **asked,
        )
        for (engine,) in engines:
            if engine != "InnoDB":
                yield wrong(
                    f"engine of {name}",
                    str(engine),
                    "it has no transactions and no row locks: two may hold a name",
                    f"ALTER TABLE {dialect.table(name)} ENGINE = InnoDB;",
                )
            keys = patient.ask(
                "SELECT c.data_type FROM information_schema.statistics AS s "
                "JOIN information_schema.columns AS c USING (table_schema, table_name, column_name)"
                f" WHERE {where.replace('table_schema', 's.table_schema')} "
                "AND s.table_name = %(table)s AND s.index_name = 'PRIMARY'",
                **asked,
            )
            if not keys:
                yield wrong(
                    f"index of {name}",
                    "it has no primary key",
                    "one name can have two rows, and so two holders",
                    RESTORE_KEY,
                )
            elif {kind for (kind,) in keys} != {"varbinary"}:
                yield wrong(
                    f"collation of {name}",
                    "its key is not VARBINARY",
                    "'a', 'A' and 'a ' may be the same lock",
                    RESTORE_KEY,
                )
            else:
                yield ok(f"table {name}", f"{engine}, with a key that is compared byte by byte")


def idle_timeouts(patient: Patient) -> Iterator[Finding]:
    names = ("wait_timeout", "idle_transaction_timeout", "max_statement_time")
    (values,) = patient.ask(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in names)}")
    limits = [
        f"{name} = {value:g} s"
        for name, value in zip(names, values, strict=True)
        if (value < SHORT_WAIT if name == "wait_timeout" else value > 0)
    ]
    if not limits:
        yield ok("idle timeouts", "none is short")
        return
    yield note(
        "idle timeouts",
        ", ".join(limits),
        "the server ends your connections that are idle for longer, and statements that take "
        "longer, and the row locks of their transactions",
        "use a lease for long work",
    )


def _set(name: str, value: str) -> str:
    """Return how to change a global setting, so that a restart does not undo it."""
    return f"put it into the server's configuration, and run:\nSET GLOBAL {name} = {value};"


CHECKS: tuple[Check, ...] = (
    server,
    isolation,
    rollbacks,
    binary_log,
    durability,
    replication,
    tables_kind,
    idle_timeouts,
)
