"""The check of a MariaDB server's replicas."""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.values import text
from .finding import Finding, Patient, ok, wrong
from .galera import galera
from .semi_synchronous import FOREVER, MISSED, asynchronous, goes_on_alone

VALUES = """SELECT LOWER(variable_name), variable_value FROM information_schema.global_{}
    WHERE variable_name = 'wsrep_on' OR variable_name LIKE 'rpl_semi_sync_master%%'"""
SEMI = "rpl_semi_sync_master_"
_PERMANENTLY = f"put it into the server's configuration, and run:\nSET GLOBAL {SEMI}"
_CONNECT = "connect a replica with rpl_semi_sync_slave_enabled = ON"
SEMI_SYNCHRONOUS = (
    "run the first two lines on the primary and the others on each replica, and put the "
    "settings into their configurations:\n"
    f"SET GLOBAL {SEMI}timeout = {FOREVER};\n"
    f"SET GLOBAL {SEMI}enabled = ON;\n"
    "SET GLOBAL rpl_semi_sync_slave_enabled = ON;\n"
    "STOP SLAVE IO_THREAD;\n"
    "START SLAVE IO_THREAD;"
)


def replication(patient: Patient) -> Iterator[Finding]:
    rows = patient.ask(VALUES.format("variables")) + patient.ask(VALUES.format("status"))
    values = {text(name): text(value) for name, value in rows}
    if values.get("wsrep_on") == "ON":
        yield from galera(patient)
    elif values.get(f"{SEMI}enabled") == "ON":
        yield _semi_synchronous({name.removeprefix(SEMI): value for name, value in values.items()})
    else:
        yield asynchronous(patient, "information_schema", SEMI_SYNCHRONOUS)


def _semi_synchronous(values: dict[str, str]) -> Finding:
    if values["status"] != "ON":
        return wrong(
            "replication",
            "semi-synchronous, but commits do not wait for a replica now",
            MISSED,
            _CONNECT,
        )
    if values["clients"] == "0":
        return wrong(
            "replication",
            "semi-synchronous, and no replica is connected that acknowledges",
            "every commit waits for one: no lock can be taken",
            _CONNECT,
        )
    found = goes_on_alone(values, "wait_no_slave", _PERMANENTLY)
    if found is not None:
        return found
    return ok("replication", "semi-synchronous")
