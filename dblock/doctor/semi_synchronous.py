"""What semi-synchronous replication has in common on MariaDB and MySQL, whose settings have other
names."""

from __future__ import annotations

from collections.abc import Mapping

from ..dialects.values import text
from .finding import Finding, Patient, note, ok, wrong

# Milliseconds for which a primary waits for its replica, if it is not to go on alone.
_LONG = 24 * 60 * 60 * 1000
FOREVER = 4_000_000_000

MISSED = (
    "a replica that is promoted may have missed the last grants: two may hold a name, and a fence "
    "may be given twice"
)


def goes_on_alone(values: Mapping[str, str], alone: str, set_permanently: str) -> Finding | None:
    """Return a finding if the primary stops waiting for its replicas at some time.

    ``values`` are the settings; ``alone`` is the one that says whether it waits without a replica;
    ``set_permanently`` begins the statement that sets one of them.
    """
    if values[alone] != "ON":
        return note(
            "replication",
            "semi-synchronous, while a replica is connected",
            "if the replica is lost, commits no longer wait: then a promoted replica may have "
            "missed the last grants",
            f"{set_permanently}{alone} = ON;",
        )
    if int(values["timeout"]) < _LONG:
        return note(
            "replication",
            f"semi-synchronous, for {int(values['timeout']) / 1000:g} s",
            "if no replica acknowledges for as long, commits no longer wait: then a promoted "
            "replica may have missed the last grants",
            f"{set_permanently}timeout = {FOREVER};",
        )
    return None


def asynchronous(patient: Patient, schema: str, fix: str) -> Finding:
    """Return the finding for a server whose commits wait for no replica.

    ``schema`` has the list of processes, of which the server shows an account without the right
    PROCESS its own ones alone.
    """
    ((replicas, others, account),) = patient.ask(f"""SELECT
        (SELECT COUNT(*) FROM {schema}.processlist WHERE command LIKE 'Binlog Dump%%'),
        (SELECT COUNT(*) FROM {schema}.processlist WHERE user <> SUBSTRING_INDEX(USER(), '@', 1))
            + (SELECT COUNT(*) FROM information_schema.user_privileges
                WHERE privilege_type = 'PROCESS'),
        CURRENT_USER()""")
    if replicas:
        return wrong("replication", f"{replicas} asynchronous", MISSED, fix)
    if others:
        return ok("replication", "no replica is seen")
    user, _, host = text(account).rpartition("@")
    return note(
        "replication",
        "this account may not see whether there are replicas",
        f"if there is one, {MISSED}",
        f"GRANT PROCESS ON *.* TO '{user}'@'{host}';",
    )
