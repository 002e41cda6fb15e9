"""Replies in rows, as a server sends them, for procedures that know only the answers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from dblock.dialects import Dialect
from dblock.dialects.query import Result
from dblock.protocol.commands import EndSession
from dblock.protocol.faults import StatementError
from dblock.protocol.steps import (
    Execute,
    ExecuteInTransaction,
    ExecuteOnSession,
    Procedure,
    Reply,
    Step,
    Turn,
    WaitTurn,
)

T = TypeVar("T")


class Rows(NamedTuple):
    """The reply to a step, as rows."""

    rows: Sequence[Sequence[Any]]
    matched: int
    sent: float
    now: float
    server: str | None = None

    def read(self, dialect: Dialect, step: Step) -> Reply[Any]:
        """Return the reply as the driver does."""
        return Reply(self._answer(dialect, step), self.sent, self.now, self.server)

    def _answer(self, dialect: Dialect, step: Step) -> Any:
        match step:
            case Execute(EndSession()):  # also of a database that has no sessions
                return bool(self.rows)
            case Execute(command) | ExecuteInTransaction(command) | ExecuteOnSession(command):
                return dialect.query(command).read(Result(self.rows, self.matched))
            case WaitTurn() if self.rows:
                return Turn(True, *self.rows[0])
            case _:
                return None


def reading(dialect: Dialect, procedure: Procedure[T]) -> Generator[Step, Rows, T]:
    """Run a procedure to which rows are sent; the dialect reads them."""
    try:
        step = next(procedure)
        while True:
            try:
                rows = yield step
            except StatementError as failure:
                step = procedure.throw(failure)
            else:
                step = procedure.send(rows.read(dialect, step))
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome
