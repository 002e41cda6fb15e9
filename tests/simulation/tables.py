"""What is in the database: dblock's rows as the checks see them, and the users' own tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

from dblock import fencing
from dblock.protocol.state import LockRow
from dblock.protocol.tokens import is_shared

#: What the users have in the database themselves: what was written under a guard, a stock, what
#: calls have done that are made once, and what was written behind a gate.
USERS = MetaData()
WRITTEN = Table(
    "written",
    USERS,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("fence", BigInteger, nullable=False),
)
STOCK = Table(
    "stock",
    USERS,
    Column("id", Integer, primary_key=True),
    Column("amount", Integer, nullable=False),
)
EFFECTS = Table(
    "effect",
    USERS,
    Column("id", Integer, primary_key=True),
    Column("idempotency_key", String(255), nullable=False),
    Column("result", Integer, nullable=False),
)
PASSED = Table(
    "passed",
    USERS,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("fence", BigInteger, nullable=False),
)
fencing.table(USERS)
#: dblock's own: what a stranger may delete.
RUNS = Table("dblock_run", MetaData())


@dataclass(frozen=True)
class Row:
    """A name's row; ``expires`` is in seconds of the database's clock."""

    token: str | None
    fence: int
    expires: float | None
    tickets: tuple[str, ...]
    #: The list of those who share the hold, as it is in the table.
    listed: str | None = None

    @cached_property
    def holders(self) -> tuple[str, ...]:
        """The tokens of those who have the name: of readers each its own."""
        row = LockRow("", self.fence, self.token, None, None, None, None, self.listed)
        return row.members

    @property
    def shared(self) -> bool:
        """Whether readers have it, or have had it."""
        return self.listed is not None or is_shared(self.token)

    def free(self, now: float) -> bool:
        return self.token is None or self.expires is None or self.expires <= now


@dataclass(frozen=True, slots=True)
class Committed:
    """What the users' transactions, and the runs of jobs, have left so far."""

    #: Names and fences by the ids of the rows.
    written: dict[int, tuple[str, int]]
    stock: dict[int, int]
    #: The keys of the changes that were applied.
    applied: set[str]
    #: The exit status by name and slot, None for a run that has not ended.
    runs: dict[tuple[str, str], int | None]
    #: The keys and results of the effects of calls, by the ids of the rows.
    effects: dict[int, tuple[str, int]] = field(default_factory=dict)
    #: The results that are on record, as JSON, by the keys; None for a call without one.
    records: dict[str, str | None] = field(default_factory=dict)
    #: The gates and fences of what was written behind them, by the ids of the rows.
    passed: dict[int, tuple[str, int]] = field(default_factory=dict)
