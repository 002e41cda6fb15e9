"""The doctor checks a database's set-up for settings that break a promise or surprise people.

Each database has a module of checks. A check is a function from the patient to findings. If its
role may not read something, its finding says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dialects import meet
from ..dialects.query import Query, all_rows
from ..io.connecting import Connector
from ..io.connections import Connections
from ..io.target import address
from ..protocol.explain import explain
from ..protocol.faults import Fault, StatementError
from . import common, mariadb, mysql, postgresql, sqlite
from .finding import Check, Finding, Level, Patient, note, ok, wrong

if TYPE_CHECKING:
    from ..locks import Locks

__all__ = ["Finding", "Level", "examine"]

CHECKS: dict[str, tuple[Check, ...]] = {
    "postgresql": postgresql.CHECKS,
    "mariadb": mariadb.CHECKS,
    "mysql": mysql.CHECKS,
    "sqlite": sqlite.CHECKS,
}


def examine(locks: Locks) -> list[Finding]:
    """Check the database of ``locks``; return a :class:`Finding` for everything it looked at.

    It changes nothing. If tables are missing, that is a finding and not an error. Raises
    Unavailable if the database cannot be reached.
    """
    dialect = locks._database.dialect
    connections = Connections(
        Connector(locks.engine, dialect.adapter), runtime=locks._database.runtime
    )
    try:
        connection = connections.take()
    except StatementError as failure:
        raise explain(dialect, failure) from failure.__cause__
    meet(dialect)
    where = address(locks.engine.url, dialect.schema, dialect.prefix)
    findings = [ok("database", where)]

    def ask(sql: str, **params: object) -> list[tuple[object, ...]]:
        query = Query(sql, params, read=all_rows)
        return [tuple(row) for row in connections.execute(connection, query).answer]

    patient = Patient(dialect, connection, ask)
    try:
        for check in (*common.CHECKS, *CHECKS[dialect.name], *common.LAST):
            try:
                findings += check(patient)
            except StatementError as failure:
                if failure.fault is Fault.DISCONNECTED:
                    raise explain(dialect, failure, harmless=True) from failure.__cause__
                findings.append(_not_seen(check.__name__.replace("_", " "), failure))
    finally:
        connections.drop(connection)
    return findings


def _not_seen(what: str, failure: StatementError) -> Finding:
    if failure.fault is Fault.PRIVILEGE:
        return note(
            what,
            f"not seen: {failure}",
            "the doctor cannot say whether it is well",
            "run the doctor as a role that has this right",
        )
    return wrong(
        what,
        f"not seen: {failure}",
        "the database failed, so the doctor cannot say whether it is well",
        "fix that error, and run the doctor again",
    )
