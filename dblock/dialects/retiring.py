"""The statements that retire names, nearly the same for all databases.

The floor is the fence of the row with the empty name, which is never a user's name. That row has no
token, no queue and no times, so no statement takes it for a lease or a waiter. And it sorts before
all other names, so a statement that pages through the names skips it.
"""

from __future__ import annotations

from ..protocol.commands import LookForUnused, RaiseFloor, Retire
from ..protocol.state import NamePage
from .dialect import Dialect
from .query import Result
from .statement import statement
from .values import text

# Names that one statement reads, and that one transaction deletes at most.
PAGE = 1000


def idle(_: Dialect, command: LookForUnused | Retire) -> dict[str, object]:
    """Return the parameter of :attr:`.Dialect.ago`."""
    return {"age": command.idle}


def _page(result: Result) -> NamePage | None:
    last, fence = result.rows[0]
    return None if last is None else NamePage(text(last), None if fence is None else int(fence))


class RetiringStatements(Dialect):
    """They retire names page by page, in the primary key's order, so none reads a whole table."""

    @property
    def unused(self) -> str:
        """Whether a name is unused. A row without times was never granted: it may be deleted."""
        return (
            "waiters IS NULL AND (expires_at IS NULL "
            f"OR expires_at < {self.ago} AND acquired_at < {self.ago})"
        )

    @property
    def retirable(self) -> str:
        """Whether a name is on the page and unused, with a fence that is not above the floor."""
        after, last, fence = map(self.parameter, ("after", "last", "fence"))
        return f"lock_name > {after} AND lock_name <= {last} AND fence <= {fence} AND {self.unused}"

    @statement(LookForUnused, read=_page, parameters=idle)
    def look_for_unused(self) -> str:
        return f"""SELECT MAX(lock_name), MAX(CASE WHEN {self.unused} THEN fence END) FROM (
                SELECT lock_name, fence, acquired_at, expires_at, waiters FROM {self.lock_table}
                WHERE lock_name > {self.parameter("after")} ORDER BY lock_name LIMIT {PAGE}
            ) AS page"""

    @statement(RaiseFloor)
    def raise_floor(self) -> str:
        return f"""INSERT INTO {self.lock_table} AS floor (lock_name, fence)
            VALUES ('', {self.parameter("fence")})
            ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence
            WHERE excluded.fence > floor.fence"""

    @statement(Retire, parameters=idle)
    def retire(self) -> str:
        return f"DELETE FROM {self.lock_table} WHERE {self.retirable}"
