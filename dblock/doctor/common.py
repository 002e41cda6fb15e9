"""What is looked at on every database: the tables, the clocks, the connection."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from ..protocol.faults import Fault, Trouble
from ..protocol.steps import Reply
from ..version import SCHEMA_VERSION
from .finding import Check, Finding, Patient, note, ok, wrong

TABLES = ("lock", "guard", "applied", "run")
# Clocks that NTP keeps differ by less.
CLOCKS_MAY_DIFFER = 1.0


def tables(patient: Patient) -> Iterator[Finding]:
    dialect = patient.dialect
    try:
        rows = patient.ask(f"SELECT version FROM {dialect.table('schema')}")
        found = rows[0][0] if rows else 0
        for table in TABLES if found == SCHEMA_VERSION else ():
            patient.ask(f"SELECT 1 FROM {dialect.table(table)} WHERE 1 = 0")
    except Trouble as trouble:
        if trouble.fault is not Fault.SCHEMA:
            raise
        yield wrong("tables", str(trouble), "nothing works", "dblock upgrade")
        return
    if found < SCHEMA_VERSION:
        needed = f"this code needs {SCHEMA_VERSION}: nothing works"
        yield wrong("tables", f"version {found}", needed, "dblock upgrade")
    elif found > SCHEMA_VERSION:
        known = f"this code knows {SCHEMA_VERSION}: nothing works"
        yield wrong("tables", f"version {found}", known, "pip install -U dblock")
    else:
        yield ok("tables", f"version {found}")


def clocks(patient: Patient) -> Iterator[Finding]:
    before = datetime.now(UTC)
    told = patient.ask(patient.dialect.now().sql)
    after = datetime.now(UTC)
    there = patient.dialect.told_time(Reply(told, 1, 0.0, 0.0))
    # It was read at some moment in between.
    apart = max((before - there).total_seconds(), (there - after).total_seconds(), 0.0)
    if apart <= CLOCKS_MAY_DIFFER:
        yield ok("clocks", f"the server's and this host's agree to {apart:.1f} s")
    else:
        yield note(
            "clocks",
            f"the server's and this host's differ by {apart:.1f} s",
            "locks go by the server's alone; but a crontab here fires so much earlier or later "
            "than elsewhere",
            "synchronise the clocks (NTP); until then, dblock run --at-least or --once-per",
        )


def keepalives(patient: Patient) -> Iterator[Finding]:
    missing = patient.dialect.unbounded(patient.connection.driver)
    if missing:
        yield note(
            "keepalives",
            f"connections are made without {' and '.join(missing)}",
            "on a network that fails silently they hang for as long as the system says",
            "give them in the URL, or in create_engine's connect_args",
        )
    else:
        yield ok("keepalives", "connections end when the network falls silent")


CHECKS: tuple[Check, ...] = (tables, clocks, keepalives)
