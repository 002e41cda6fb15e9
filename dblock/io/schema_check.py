"""Whether dblock's tables are of the version that this code needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import SchemaMissing
from ..protocol.explain import explain, schema_missing
from ..protocol.faults import Fault, StatementError
from ..protocol.steps import Query
from ..version import SCHEMA_VERSION, Schema

if TYPE_CHECKING:
    from ..dialects import Dialect
    from .connecting import OwnConnection
    from .connections import Connections


class SchemaCheck:
    """Looks at the tables of one database on the first connection to it, whichever that is."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._passed = False

    def __call__(self, connections: Connections, connection: OwnConnection) -> None:
        """Raises SchemaMissing for tables of another version, or none."""
        if self._passed:
            return
        query: Query[int] = Query(f"SELECT * FROM {self._dialect.table('schema')}", {})
        try:
            reply = connections.execute(connection, query, self._dialect.timeouts.connect)
        except StatementError as failure:
            if failure.fault is Fault.DISCONNECTED:  # as any connection that cannot be made
                raise StatementError(
                    Fault.UNREACHABLE, str(failure), timed_out=failure.timed_out
                ) from failure.__cause__
            raise explain(self._dialect, failure) from failure.__cause__
        found = Schema.of(reply.rows[0] if reply.rows else None)
        if found.version > SCHEMA_VERSION:
            raise SchemaMissing(
                f"dblock's tables here have version {found.version}, newer than this code's "
                f"{SCHEMA_VERSION}: upgrade dblock (pip install -U dblock)"
            )
        if found.revision < SCHEMA_VERSION:
            raise schema_missing(
                self._dialect,
                f"they have version {found.revision}, this code needs {SCHEMA_VERSION}",
            )
        self._passed = True
