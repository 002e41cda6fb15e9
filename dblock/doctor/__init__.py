"""The doctor: looks for what in a database's set-up would break a promise, or surprise.

Each database has a module of checks. A check is a function from the patient to findings; one that
cannot look, for lack of a right, says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..io.connections import Connections
from ..protocol.explain import explain
from ..protocol.faults import Fault, StatementError
from ..protocol.steps import Query
from . import common, mariadb, postgresql, sqlite
from .finding import Check, Finding, Level, Patient, note, wrong

if TYPE_CHECKING:
    from ..locks import Locks

__all__ = ["Finding", "Level", "examine"]

CHECKS: dict[str, tuple[Check, ...]] = {
    "postgresql": postgresql.CHECKS,
    "mariadb": mariadb.CHECKS,
    "sqlite": sqlite.CHECKS,
}


def examine(locks: Locks) -> list[Finding]:
    """Look at the database of ``locks``. Raises Unavailable when it is not reached.

    Nothing is changed, and tables that are missing are a finding, not an error.
    """
    dialect = locks.dialect
    connections = Connections(locks.engine, dialect.adapter, runtime=locks.database.runtime)
    try:
        connection = connections.take()
    except StatementError as failure:
        raise explain(dialect, failure) from failure.__cause__
    findings: list[Finding] = []

    def ask(sql: str, **params: object) -> list[tuple[object, ...]]:
        return [tuple(row) for row in connections.execute(connection, Query(sql, params)).rows]

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
        return note(what, f"not seen: {failure}", "nothing is known of it", "ask who may see it")
    return wrong(what, f"not seen: {failure}", "the database failed", "mend that first")
