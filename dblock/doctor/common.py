"""What is looked at on every database: the tables, the connection, the clocks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from .. import clock
from ..dialects.values import utc
from ..protocol.faults import Fault, StatementError
from ..protocol.steps import Reply
from ..version import SCHEMA_VERSION, Schema
from .finding import Check, Finding, Look, Patient, note, ok, wrong

TABLES = ("lock", "guard", "applied", "once", "run")
# Clocks that NTP keeps differ by less.
CLOCKS_MAY_DIFFER = 1.0
# A clock that NTP keeps goes evenly: so much does it not go wrong while the doctor looks.
CLOCK_MAY_STEP = 0.1


def tables(patient: Patient) -> Iterator[Finding]:
    dialect = patient.dialect
    command = dialect.upgraded_by or "dblock upgrade"
    try:
        rows = patient.ask(f"SELECT * FROM {dialect.table('schema')}")
        found = Schema.of(rows[0] if rows else None)
        for table in TABLES if found.revision == SCHEMA_VERSION else ():
            patient.ask(f"SELECT 1 FROM {dialect.table(table)} WHERE 1 = 0")
    except StatementError as failure:
        if failure.fault is not Fault.SCHEMA:
            raise
        yield wrong("tables", str(failure), "nothing works", command)
        return
    if found.revision < SCHEMA_VERSION:
        needed = f"this code needs {SCHEMA_VERSION}: nothing works"
        yield wrong("tables", f"version {found.revision}", needed, command)
    elif found.version > SCHEMA_VERSION:
        known = f"this code knows {SCHEMA_VERSION}: nothing works"
        yield wrong("tables", f"version {found.version}", known, "pip install -U dblock")
    else:
        yield ok("tables", f"version {found.revision}")


def clocks(patient: Patient) -> Iterator[Finding]:
    before = datetime.now(UTC)
    there = look(patient).there
    after = datetime.now(UTC)
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


def look(patient: Patient) -> Look:
    """Read the server's clock."""
    before = clock.now()
    query = patient.dialect.now()
    there = query.read(Reply(patient.ask(query.sql), 1, 0.0, 0.0))
    patient.looks.append(Look(there, before, clock.now()))
    return patient.looks[-1]


def clock_steps(patient: Patient) -> Iterator[Finding]:
    """Whether the server's clock has gone as far as ours since the first look."""
    last, first = look(patient), patient.looks[0]
    went = (last.there - first.there).total_seconds()
    least, most = last.before - first.after, last.after - first.before
    if least - CLOCK_MAY_STEP <= went <= most + CLOCK_MAY_STEP:
        yield ok("clock steps", f"none within {most:.1f} s")
    else:
        yield wrong(
            "clock steps",
            f"the server's clock went {went:+.1f} s within {most:.1f} s",
            "leases end too early, so that two may hold a name, or too late",
            "let one NTP client keep the server's clock, which slews it and does not step it",
        )


def clock_set_back(patient: Patient) -> Iterator[Finding]:
    """Whether a lease was granted after what the server's clock says now."""
    dialect = patient.dialect
    try:
        ((now, newest),) = patient.ask(
            f"SELECT {dialect.clock}, MAX(acquired_at) FROM {dialect.lock_table}"
        )
    except StatementError as failure:
        if failure.fault is not Fault.SCHEMA:
            raise
        return
    there, latest = utc(now), utc(newest)
    assert there is not None
    if latest is None or latest - there <= timedelta(seconds=CLOCKS_MAY_DIFFER):
        yield ok("clock set back", "no lease is from later than now")
    else:
        yield note(
            "clock set back",
            f"a lease was granted {(latest - there).total_seconds():.1f} s later than now",
            "the clock was ahead: leases of then last so much longer, also those whose holder died",
            "dblock list shows them, and dblock release NAME --force lets one go",
        )


def keepalives(patient: Patient) -> Iterator[Finding]:
    missing = patient.dialect.adapter.unbounded(patient.connection.driver)
    if missing:
        yield note(
            "keepalives",
            f"connections are made without {' and '.join(missing)}",
            "on a network that fails silently they hang for as long as the system says",
            "give them in the URL, or in create_engine's connect_args",
        )
    else:
        yield ok("keepalives", "connections end when the network falls silent")


CHECKS: tuple[Check, ...] = (tables, clocks, clock_set_back, keepalives)
LAST: tuple[Check, ...] = (clock_steps,)
