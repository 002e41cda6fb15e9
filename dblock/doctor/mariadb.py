"""What is looked at on MariaDB. Settings are the server's: dblock's own sessions change some."""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.look_alikes import recognise
from ..dialects.values import text
from .finding import Check, Finding, Patient, note, ok, trusted, wrong

# Shorter, and connections that are idle between two runs of a lease's keeper end.
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
            "nothing can be locked",
            "SET GLOBAL tx_read_only = OFF;",
        )
    elif read_only:
        yield wrong(
            "server", f"{version}, read-only", "nothing can be locked", "use the primary server"
        )
    else:
        yield ok("server", str(version))


def isolation(patient: Patient) -> Iterator[Finding]:
    ((level,),) = patient.ask("SELECT @@GLOBAL.tx_isolation")
    if level == "READ-COMMITTED":
        yield ok("isolation", level)
    else:
        yield note(
            "isolation",
            f"{level} by default",
            "in a transaction of yours a plain SELECT may be older than the lock you have taken",
            "take the lock first, or read what it protects with FOR UPDATE; or READ COMMITTED",
        )


def rollbacks(patient: Patient) -> Iterator[Finding]:
    ((whole,),) = patient.ask("SELECT @@GLOBAL.innodb_rollback_on_timeout")
    if whole:
        yield wrong(
            "rollbacks",
            "innodb_rollback_on_timeout = ON",
            "a row lock or a guard that is refused in a transaction of yours undoes all of it, "
            "without a word",
            "innodb_rollback_on_timeout = OFF in the server's configuration, and a restart",
        )
    else:
        yield ok("rollbacks", "a refused statement undoes itself alone")


def binary_log(patient: Patient) -> Iterator[Finding]:
    ((log, kind),) = patient.ask("SELECT @@GLOBAL.log_bin, @@GLOBAL.binlog_format")
    if log and kind == "STATEMENT":
        yield wrong(
            "binary log",
            "binlog_format = STATEMENT",
            "nothing can be locked: dblock's sessions are READ COMMITTED, which needs rows in it",
            "SET GLOBAL binlog_format = MIXED;",
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
            "a crash of the server loses grants of the last second: two may hold a name",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1;",
        )


def replication(patient: Patient) -> Iterator[Finding]:
    values = dict(
        patient.ask(
            "SELECT LOWER(variable_name), variable_value FROM information_schema.global_variables "
            "WHERE variable_name IN ('wsrep_on', 'rpl_semi_sync_master_enabled')"
        )
    )
    ((replicas,),) = patient.ask(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%%'"
    )
    if values.get("wsrep_on") == "ON":
        yield wrong(
            "replication",
            "a Galera cluster",
            "leases exclude each other on all nodes, row locks and guards on one node only",
            "send all that uses row locks or guards to one node",
        )
    elif not replicas:
        yield ok("replication", "no replica is seen")
    elif values.get("rpl_semi_sync_master_enabled") == "ON":
        yield ok("replication", "semi-synchronous")
    else:
        yield wrong(
            "replication",
            f"{replicas} asynchronous",
            "a replica that is promoted may have missed the last grants: two may hold a name, and "
            "a fence be given twice",
            "SET GLOBAL rpl_semi_sync_master_enabled = ON;",
        )


def tables_kind(patient: Patient) -> Iterator[Finding]:
    """The engine, the collation, the index."""
    dialect = patient.dialect
    where = f"table_schema = {'%(schema)s' if dialect.schema else 'DATABASE()'}"
    for name in ("lock", "guard", "applied", "once", "run"):
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
                    "it has no transactions and no row locks: nothing is exclusive",
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
                    "one name can have two rows, and two holders",
                    "restore it: dblock upgrade --sql shows its definition",
                )
            elif {kind for (kind,) in keys} != {"varbinary"}:
                yield wrong(
                    f"collation of {name}",
                    "its key is not VARBINARY",
                    "'a', 'A' and 'a ' may be one name",
                    "restore it: dblock upgrade --sql shows its definition",
                )
            else:
                yield ok(f"table {name}", f"{engine}, with its key, compared byte by byte")


def idle_timeouts(patient: Patient) -> Iterator[Finding]:
    names = ("wait_timeout", "idle_transaction_timeout", "max_statement_time")
    (values,) = patient.ask(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in names)}")
    limits = [
        f"{name} = {value:g} s"
        for name, value in zip(names, values, strict=True)
        if (value < SHORT_WAIT if name == "wait_timeout" else value > 0)
    ]
    if not limits:
        yield ok("idle timeouts", "none that is short")
        return
    yield note(
        "idle timeouts",
        ", ".join(limits),
        "the server ends connections or statements of yours that pause for longer, and the row "
        "locks in them",
        "a lease for long work",
    )


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
