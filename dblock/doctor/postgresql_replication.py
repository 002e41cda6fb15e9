"""The checks of PostgreSQL's standbys: whether commits wait for one before they are confirmed."""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.values import text
from .finding import Finding, Patient, note, ok, wrong
from .postgresql_settings import reset, settings, system

# With this setting a commit waits for no standby. For a grant dblock turns ``off`` into ``on``.
NOT_WAITING = "local"
IF_WANTED = "if you want commits to wait for a standby:"
BY_PATRONI = (
    "; Patroni sets this, and empties it when the last standby goes, unless "
    "synchronous_mode_strict is on"
)
MISSED = (
    "a standby that is promoted may have missed the last grants: dblock grants nothing there until "
    "the longest TTL that the standby knows of is over"
)


def replication(patient: Patient) -> Iterator[Finding]:
    """Check whether commits wait for a standby, and whether one is there to be waited for."""
    found = settings(patient, "synchronous_standby_names", "synchronous_commit")
    names, commit = found["synchronous_standby_names"], found["synchronous_commit"]
    ((standbys, confirming, hidden, patroni),) = patient.ask(
        "SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum') "
        "AND state = 'streaming'), count(*) FILTER (WHERE state IS NULL), EXISTS (SELECT FROM "
        "pg_stat_activity WHERE application_name LIKE 'Patroni %%') FROM pg_stat_replication"
    )
    if not names:
        yield from _asynchronous(standbys, patroni=patroni)
    elif commit == NOT_WAITING:
        yield note(
            "replication",
            f"{standbys} asynchronous (synchronous_commit = {commit})",
            MISSED,
            f"{IF_WANTED}\n{reset(patient, 'synchronous_commit', 'on')}",
        )
    elif not confirming and not hidden:
        yield wrong(
            "replication",
            f"synchronous ({names}), and no such standby is streaming",
            "each commit waits until one streams: no lock can be taken",
            "start the standby; pg_stat_replication lists the connected standbys",
        )
    else:
        unseen = "; whether one streams is shown only to members of pg_monitor"
        yield ok(
            "replication",
            f"synchronous: {names}{'' if confirming else unseen}{BY_PATRONI if patroni else ''}",
        )
        yield from _roles(patient)


def _asynchronous(standbys: int, *, patroni: bool) -> Iterator[Finding]:
    """Report standbys that no commit waits for."""
    if not standbys:
        yield ok("replication", "no standby is connected")
    elif patroni:
        yield note(
            "replication",
            f"{standbys} asynchronous, in a Patroni cluster",
            f"{MISSED}. If Patroni hangs, the old primary goes on granting beside the new one",
            f"{IF_WANTED} (an old primary then stops granting)\n"
            "patronictl edit-config --set synchronous_mode=true",
        )
    else:
        yield note(
            "replication",
            f"{standbys} asynchronous",
            MISSED,
            f"{IF_WANTED}\n" + system("synchronous_standby_names", "'*'"),
        )


def _roles(patient: Patient) -> Iterator[Finding]:
    """Check which roles' sessions do not wait for the standby although the server could."""
    rows = patient.ask(
        "SELECT CASE WHEN setrole <> 0::oid "
        "THEN pg_catalog.quote_ident(pg_get_userbyid(setrole)) END, "
        "pg_catalog.quote_ident(datname) "
        "FROM pg_db_role_setting LEFT JOIN pg_database ON pg_database.oid = setdatabase "
        "WHERE 'synchronous_commit=local' = ANY (setconfig) "
        "AND (setdatabase = 0::oid OR datname = current_database()) ORDER BY 1, 2"
    )
    whose = [
        " IN ".join(
            f"{kind} {text(name)}"
            for kind, name in (("ROLE", role), ("DATABASE", database))
            if name is not None
        )
        for role, database in rows
    ]
    if whose:
        yield note(
            "replication of roles",
            "synchronous_commit = local for "
            + ", ".join(text(role) if role else "every role" for role, _ in rows),
            "their grants do not wait for a standby: one that is promoted may have missed them",
            "\n".join(f"ALTER {one} RESET synchronous_commit;" for one in whose),
        )
