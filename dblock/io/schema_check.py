"""Finds dblock's tables, and checks that they have the version that this code needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.explain import explain
from ..protocol.faults import Fault, StatementError
from ..protocol.place import settle
from .fork import begins_anew

if TYPE_CHECKING:
    from ..dialects import Dialect
    from .connecting import OwnConnection
    from .connections import Connections


class SchemaCheck:
    """Checks the tables of a database on the first connection to it; and on the first one after its
    server has joined or left a cluster."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        begins_anew(self)

    def __call__(self, connections: Connections, connection: OwnConnection) -> None:
        """Raises SchemaMissing for tables of another version, or none."""
        place = self._dialect.place
        if place is not None and place.clustered == self._dialect.adapter.clustered:
            return
        query = self._dialect.look_around()
        try:
            reply = connections.execute(connection, query, self._dialect.timeouts.connect)
        except StatementError as failure:
            if failure.fault is Fault.DISCONNECTED:  # report it as a connection that was not made
                raise StatementError(
                    Fault.UNREACHABLE, str(failure), timed_out=failure.timed_out
                ) from failure.__cause__
            raise explain(self._dialect, failure) from failure.__cause__
        settle(self._dialect, query.read(reply))

    def forget_parent(self) -> None:
        """Check again in a forked child, whose database may have another name, as in tests."""
        self._dialect.settle(None)
