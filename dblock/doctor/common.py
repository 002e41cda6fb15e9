"""The checks for every database: the tables, the connection, the clocks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from ..dialects.query import Result
from ..dialects.values import utc
from ..protocol.commands import ReadClock
from ..protocol.faults import Fault, StatementError
from ..protocol.schema_version import SCHEMA_VERSION, Schema
from ..system import clock
from .finding import Check, ClockReading, Finding, Patient, note, ok, wrong

TABLES = ("lock", "guard", "applied", "once", "value", "run")
# Seconds. Clocks that NTP keeps differ by less.
CLOCKS_MAY_DIFFER = 1.0
# Seconds. A clock that NTP slews goes wrong by less during the doctor's checks.
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
        yield wrong("tables", str(failure), "no lock can be taken", command)
        return
    if not rows:
        nothing = "the table of their version has no row, or none that this role may see"
        yield wrong("tables", nothing, "no lock can be taken", "look for row security below")
    elif found.revision < SCHEMA_VERSION:
        needed = f"this dblock needs version {SCHEMA_VERSION}: no lock can be taken"
        yield wrong("tables", f"version {found.revision}", needed, command)
    elif found.version > SCHEMA_VERSION:
        known = f"this dblock knows only version {SCHEMA_VERSION}: no lock can be taken"
        yield wrong("tables", f"version {found.version}", known, "pip install -U dblock")
    else:
        yield ok("tables", f"version {found.revision}")


def clocks(patient: Patient) -> Iterator[Finding]:
    before = datetime.now(UTC)
    there = look(patient).there
    after = datetime.now(UTC)
    # The server read its clock at some moment in between.
    apart = max((before - there).total_seconds(), (there - after).total_seconds(), 0.0)
    if apart <= CLOCKS_MAY_DIFFER:
        yield ok("clocks", f"the server's clock and this host's agree to {apart:.1f} s")
    else:
        yield note(
            "clocks",
            f"the server's clock and this host's differ by {apart:.1f} s",
            "locks go by the server's clock, but cron starts jobs here that much earlier or later "
            "than on other hosts",
            "synchronize the clocks with NTP; until then use dblock run with --at-least and "
            "--once-per",
        )


def look(patient: Patient) -> ClockReading:
    """Read the server's clock."""
    before = clock.now()
    query = patient.dialect.query(ReadClock())
    there = query.read(Result(patient.ask(query.sql), 1))
    patient.looks.append(ClockReading(there, before, clock.now()))
    return patient.looks[-1]


def clock_steps(patient: Patient) -> Iterator[Finding]:
    """Check whether the server's clock has advanced as far as ours since the first look."""
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
            "let one NTP client set the server's clock, and configure it to slew, not to step",
        )


def clock_set_back(patient: Patient) -> Iterator[Finding]:
    """Check whether a lease was granted later than the server's clock now."""
    dialect = patient.dialect
    try:
        ((now, newest),) = patient.ask(
            f"SELECT {dialect.clock}, MAX(acquired_at) FROM {dialect.table('lock')}"
        )
    except StatementError as failure:
        if failure.fault is not Fault.SCHEMA:
            raise
        return
    there, latest = utc(now), utc(newest)
    assert there is not None
    if latest is None or latest - there <= timedelta(seconds=CLOCKS_MAY_DIFFER):
        yield ok("clock set back", "no lease is from the future")
    else:
        yield note(
            "clock set back",
            f"a lease was granted {(latest - there).total_seconds():.1f} s in the future",
            "the clock was ahead then: the leases from that time last that much longer, even if "
            "their holder has died",
            "list the leases, and release the leases of dead holders:\n"
            "dblock list\n"
            "dblock release NAME --force",
        )


def keepalives(patient: Patient) -> Iterator[Finding]:
    missing = patient.dialect.adapter.unbounded(patient.connection.driver)
    if missing:
        yield note(
            "keepalives",
            f"your engine connects without {' and '.join(missing)}",
            "if the network fails silently, its connections hang for as long as the operating "
            "system allows",
            "set them in the URL, or in create_engine's connect_args",
        )
    else:
        yield ok("keepalives", "connections end if the network falls silent")


CHECKS: tuple[Check, ...] = (tables, clocks, clock_set_back, keepalives)
LAST: tuple[Check, ...] = (clock_steps,)
