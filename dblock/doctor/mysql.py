"""The checks for MySQL. They look at global settings: dblock's own sessions change some."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ..dialects.look_alikes import recognise
from ..dialects.values import text
from ..protocol.faults import Fault, StatementError
from .finding import Check, Finding, Patient, note, ok, trusted, wrong
from .innodb import SHORT_WAIT, short_limits, tables_kind
from .mysql_replication import replication

READ_ONLY = ("super_read_only", "read_only")
#: The tables from which dblock reads the transactions that have locked rows.
ROW_LOCKS = tuple(
    f"performance_schema.{table}"
    for table in (
        "data_locks",
        "threads",
        "session_connect_attrs",
        "events_transactions_current",
        "events_statements_current",
    )
)


def server(patient: Patient) -> Iterator[Finding]:
    ((version, comment, *switches, transactions),) = patient.ask(
        "SELECT VERSION(), @@version_comment, "
        f"{', '.join(f'@@GLOBAL.{name}' for name in READ_ONLY)}, @@GLOBAL.transaction_read_only"
    )
    on = [name for name, value in zip(READ_ONLY, switches, strict=True) if value]
    other = recognise(text(version), patient.dialect.adapter.real, text(comment))
    if other is not None:
        yield trusted(other)
    elif on:
        yield wrong(
            "server",
            f"{version}, {on[0]} = ON",
            "no lock can be taken",
            "give dblock the URL of the primary",
        )
    elif transactions:
        yield wrong(
            "server",
            f"{version}, transaction_read_only = ON",
            "no lock can be taken",
            _set("transaction_read_only", "OFF"),
        )
    else:
        yield ok("server", str(version))


def isolation(patient: Patient) -> Iterator[Finding]:
    ((level,),) = patient.ask("SELECT @@GLOBAL.transaction_isolation")
    if level == "READ-COMMITTED":
        yield ok("isolation", level)
    else:
        yield note(
            "isolation",
            f"{level} by default",
            "in your own transaction a plain SELECT may return data from before you got the lock",
            "take the lock before the first SELECT, or read with FOR UPDATE, or use READ COMMITTED",
        )


def rollbacks(patient: Patient) -> Iterator[Finding]:
    ((whole,),) = patient.ask("SELECT @@GLOBAL.innodb_rollback_on_timeout")
    if not whole:
        yield ok("rollbacks", "a refused statement undoes only itself")
        return
    yield wrong(
        "rollbacks",
        "innodb_rollback_on_timeout = ON",
        "if `once`, a gate or a statement of yours waits too long for a row in your own "
        "transaction, the server undoes the whole transaction; for `once` and a gate dblock raises "
        "DeadlockDetected then. Its row locks and guards never wait that long",
        "put this into the server's configuration, and restart it:\n"
        "innodb_rollback_on_timeout = OFF",
    )


def clock_of_statements(patient: Patient) -> Iterator[Finding]:
    """Check that SYSDATE() goes on during a statement. No variable says it."""
    ((began, _, went_on),) = patient.ask("SELECT NOW(6), SLEEP(0.001), SYSDATE(6)")
    assert isinstance(began, datetime)
    assert isinstance(went_on, datetime)
    if went_on > began:
        yield ok("clock of statements", "SYSDATE() goes on while a statement runs")
    else:
        yield wrong(
            "clock of statements",
            "SYSDATE() stands still while a statement runs (sysdate-is-now)",
            "a statement that had to wait goes by the time from before: a lease that ran out "
            "meanwhile counts as held",
            "take this out of the server's configuration, and restart it:\nsysdate-is-now",
        )


def binary_log(patient: Patient) -> Iterator[Finding]:
    ((log, kind, ordered),) = patient.ask(
        "SELECT @@GLOBAL.log_bin, @@GLOBAL.binlog_format, @@GLOBAL.binlog_order_commits"
    )
    if not log:
        yield ok("binary log", "none")
    elif kind == "STATEMENT":
        yield wrong(
            "binary log",
            "binlog_format = STATEMENT",
            "no lock can be taken: with such a log MySQL refuses READ COMMITTED, which dblock's "
            "sessions use",
            _set("binlog_format", "ROW"),
        )
    elif not ordered:
        yield note(
            "binary log",
            "binlog_order_commits = OFF",
            "transactions may be committed in another order than the log has them: a replica that "
            "is made from a backup may lack a grant",
            _set("binlog_order_commits", "ON"),
        )
    else:
        yield ok("binary log", str(kind))


def durability(patient: Patient) -> Iterator[Finding]:
    ((flush, log, synced),) = patient.ask(
        "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog"
    )
    # After a crash the server undoes transactions that are prepared, but not in the binary log.
    settings = {"innodb_flush_log_at_trx_commit": flush} | ({"sync_binlog": synced} if log else {})
    ill = [name for name, value in settings.items() if int(value) != 1]
    if not ill:
        yield ok("durability", ", ".join(f"{name} = {settings[name]}" for name in settings))
    else:
        yield wrong(
            "durability",
            ", ".join(f"{name} = {settings[name]}" for name in ill),
            "a crash of the server or of its machine can lose the newest grants: two may hold a "
            "name",
            "\n".join(_set(name, "1") for name in ill),
        )


def idle_timeouts(patient: Patient) -> Iterator[Finding]:
    ((idle, statements),) = patient.ask("SELECT @@GLOBAL.wait_timeout, @@GLOBAL.max_execution_time")
    limits = [f"wait_timeout = {idle} s"] if idle < SHORT_WAIT else []
    limits += [f"max_execution_time = {statements / 1000:g} s"] if statements else []
    yield short_limits(limits)


def row_locks(patient: Patient) -> Iterator[Finding]:
    ((on, account),) = patient.ask("SELECT @@performance_schema, CURRENT_USER()")
    if on:
        try:
            patient.ask(f"SELECT 1 FROM {', '.join(ROW_LOCKS)} LIMIT 0")
        except StatementError as failure:
            if failure.fault is not Fault.PRIVILEGE:
                raise
        else:
            yield ok("row locks", "this account may read their transactions")
            return
    user, _, host = text(account).rpartition("@")
    quoted = "@".join("'{}'".format(part.replace("'", "''")) for part in (user, host))
    yield note(
        "row locks",
        "this account may not read performance_schema" if on else "performance_schema = OFF",
        "`dblock show` cannot tell which transaction has locked a name",
        f"GRANT SELECT ON performance_schema.* TO {quoted};"
        if on
        else "put this into the server's configuration, and restart it:\nperformance_schema = ON",
    )


def _set(name: str, value: str) -> str:
    """Return how to change a global setting, so that a restart does not undo it."""
    return f"SET PERSIST {name} = {value};"


CHECKS: tuple[Check, ...] = (
    server,
    isolation,
    rollbacks,
    clock_of_statements,
    binary_log,
    durability,
    replication,
    tables_kind,
    idle_timeouts,
    row_locks,
)
