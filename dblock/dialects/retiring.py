"""The statements that retire names, nearly the same for all databases.

The floor is the fence of the row with the empty name, which is never a user's name. That row has no
token, no queue and no times, so no statement takes it for a lease or a waiter. And it sorts before
all other names, so a statement that pages through the names skips it.
"""

from __future__ import annotations

from ..protocol import commands
from ..protocol.state import NamePage
from ..protocol.steps import Query, Reply
from .dialect import Dialect
from .values import text

# Names that one statement reads, and that one transaction deletes at most.
PAGE = 1000


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

    def look_for_unused(self, after: str, idle: float) -> Query[NamePage | None]:
        return Query(
            f"""SELECT MAX(lock_name), MAX(CASE WHEN {self.unused} THEN fence END) FROM (
                SELECT lock_name, fence, acquired_at, expires_at, waiters FROM {self.lock_table}
                WHERE lock_name > {self.parameter("after")} ORDER BY lock_name LIMIT {PAGE}
            ) AS page""",
            {"after": self.key(after), "age": idle},
            commands.LookForUnused(after, idle),
            self.patience,
            read=_page,
        )

    def raise_floor(self, fence: int) -> Query[int]:
        return Query(
            f"""INSERT INTO {self.lock_table} AS floor (lock_name, fence)
            VALUES ('', {self.parameter("fence")})
            ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence
            WHERE excluded.fence > floor.fence""",
            {"fence": fence},
            commands.RaiseFloor(fence),
            self.patience,
        )

    def retire(self, after: str, last: str, fence: int, idle: float) -> Query[int]:
        return Query(
            f"DELETE FROM {self.lock_table} WHERE {self.retirable}",
            self.page(after, last, fence, idle),
            commands.Retire(after, last, fence, idle),
            self.patience,
        )

    def page(self, after: str, last: str, fence: int, idle: float) -> dict[str, object]:
        """Return the parameters of :attr:`retirable`."""
        return {"after": self.key(after), "last": self.key(last), "fence": fence, "age": idle}


def _page(reply: Reply) -> NamePage | None:
    last, fence = reply.rows[0]
    return None if last is None else NamePage(text(last), None if fence is None else int(fence))
