"""The checks for MariaDB. They look at global settings: dblock's own sessions change some."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..dialects.look_alikes import recognise
from ..dialects.values import text
from .finding import Check, Finding, Patient, note, ok, trusted, wrong
from .innodb import SHORT_WAIT, short_limits, tables_kind
from .mariadb_replication import replication

# From this version on dblock's statements can switch innodb_snapshot_isolation off.
SPARED = (11, 4, 2)


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
            "if a row lock, a guard or `once` is refused in your own transaction, the server "
            "undoes the whole transaction, and dblock raises DeadlockDetected",
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


def idle_timeouts(patient: Patient) -> Iterator[Finding]:
    names = ("wait_timeout", "idle_transaction_timeout", "max_statement_time")
    (values,) = patient.ask(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in names)}")
    limits = [
        f"{name} = {value:g} s"
        for name, value in zip(names, values, strict=True)
        if (value < SHORT_WAIT if name == "wait_timeout" else value > 0)
    ]
    yield short_limits(limits)


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
