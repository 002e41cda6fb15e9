"""The checks that MariaDB and MySQL have in common: the tables, as InnoDB stores them."""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.values import text
from .common import TABLES
from .finding import RESTORE_KEY, Finding, Patient, note, ok, wrong

# Seconds. With less, the server ends connections that are idle between two renewals.
SHORT_WAIT = 60


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
            elif {text(kind) for (kind,) in keys} != {"varbinary"}:
                yield wrong(
                    f"collation of {name}",
                    "its key is not VARBINARY",
                    "'a', 'A' and 'a ' may be the same lock",
                    RESTORE_KEY,
                )
            else:
                yield ok(f"table {name}", f"{engine}, with a key that is compared byte by byte")


def short_limits(limits: list[str]) -> Finding:
    """Return the finding for the limits of idle connections and of statements."""
    if not limits:
        return ok("idle timeouts", "none is short")
    return note(
        "idle timeouts",
        ", ".join(limits),
        "the server ends your connections that are idle for longer, with their row locks, and "
        "statements that take longer",
        "use a lease for long work",
    )
