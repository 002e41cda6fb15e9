"""The check of a MySQL server's replicas: asynchronous, semi-synchronous, or a group."""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.values import text
from .finding import Finding, Patient, note, ok, wrong
from .mysql_group import group
from .semi_synchronous import FOREVER, MISSED, asynchronous, goes_on_alone

VALUES = """SELECT LOWER(variable_name), variable_value FROM performance_schema.global_{}
    WHERE variable_name LIKE 'group\\_replication\\_%%'
        OR variable_name LIKE 'rpl\\_semi\\_sync\\_source\\_%%'"""
SEMI = "rpl_semi_sync_source_"
_CONNECT = "connect a replica with rpl_semi_sync_replica_enabled = ON"
SEMI_SYNCHRONOUS = (
    "run the first three lines on the primary and the others on each replica, which installs "
    "no plugin while it is super_read_only:\n"
    "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so';\n"
    f"SET PERSIST {SEMI}timeout = {FOREVER};\n"
    f"SET PERSIST {SEMI}enabled = ON;\n"
    "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so';\n"
    "SET PERSIST rpl_semi_sync_replica_enabled = ON;\n"
    "STOP REPLICA IO_THREAD;\n"
    "START REPLICA IO_THREAD;"
)


def replication(patient: Patient) -> Iterator[Finding]:
    rows = patient.ask(VALUES.format("variables")) + patient.ask(VALUES.format("status"))
    values = {text(name): text(value) for name, value in rows}
    if values.get("group_replication_group_name"):
        yield from group(patient, values)
    elif values.get(f"{SEMI}enabled") == "ON":
        yield _semi_synchronous({name.removeprefix(SEMI): value for name, value in values.items()})
    else:
        yield asynchronous(patient, "performance_schema", SEMI_SYNCHRONOUS)


def _semi_synchronous(values: dict[str, str]) -> Finding:
    if values["status"] != "ON":
        return wrong(
            "replication",
            "semi-synchronous, but commits do not wait for a replica now",
            MISSED,
            _CONNECT,
        )
    if int(values["clients"]) < int(values["wait_for_replica_count"]):
        return wrong(
            "replication",
            f"semi-synchronous, and {values['clients']} replicas are connected that acknowledge, "
            f"of {values['wait_for_replica_count']} that are needed",
            "every commit waits for them: no lock can be taken",
            _CONNECT,
        )
    found = goes_on_alone(values, "wait_no_replica", f"SET PERSIST {SEMI}")
    if found is not None:
        return found
    if values["wait_point"] != "AFTER_SYNC":
        return note(
            "replication",
            f"semi-synchronous, {values['wait_point']}",
            "others see a release or a grant that no replica has yet, and act on it",
            f"SET PERSIST {SEMI}wait_point = 'AFTER_SYNC';",
        )
    return ok("replication", "semi-synchronous")
