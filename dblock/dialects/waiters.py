"""The statements over the table of waiters, which are nearly the same for all databases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from ..lock_state import WaiterState
from ..protocol.commands import ListBlocked, ListWaiters, Register, Sweep, Unregister
from ..protocol.deadlock import Blocked
from .dialect import Dialect
from .query import Result
from .statement import statement
from .values import text, utc


def _waiters(result: Result) -> dict[str, tuple[WaiterState, ...]]:
    """Read the waiters for each name."""
    found: dict[str, tuple[WaiterState, ...]] = {}
    for key, owner, strategy, since, waited in result.rows:
        moment = utc(since)
        assert moment is not None
        waiter = WaiterState(owner, strategy, moment, float(waited))
        found[text(key)] = (*found.get(text(key), ()), waiter)
    return found


def _all_blocked(result: Result) -> list[Blocked]:
    return list(map(_blocked, result.rows))


def _blocked(row: Sequence[Any]) -> Blocked:
    id, key, fence, owner, since, holds = row
    moment = utc(since)
    assert moment is not None
    return Blocked(id, text(key), fence, owner, moment, json.loads(holds))


def _times_and_holds(dialect: Dialect, command: Register) -> dict[str, object]:
    return {
        "since": dialect.shift(-command.waited),
        "expiry": dialect.shift(command.lasts),
        "holds": json.dumps(command.holds) if command.holds else None,
    }


class WaiterStatements(Dialect):
    """Only the waiter itself writes its row, which blocks no other session, and proves nothing.

    Readers of the table believe it until it expires. Any process may delete it after that.
    """

    #: The end of an INSERT that updates an existing row.
    upsert: ClassVar[str] = (
        "ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, holds = excluded.holds"
    )
    #: The end of a statement that a crash may undo.
    lazily: ClassVar[str] = ""

    @statement(Register, parameters=_times_and_holds)
    def register(self) -> str:
        said = [*map(self.parameter, ("id", "name", "strategy", "owner"))]
        times = [self.later.format(self.parameter(time)) for time in ("since", "expiry")]
        values = ", ".join((*said, *times, self.parameter("holds")))
        return f"""INSERT INTO {self.waiter_table}
                (id, lock_name, strategy, owner, since, expires_at, holds)
            VALUES ({values}) {self.upsert} {self.lazily}"""

    @statement(Unregister)
    def unregister(self) -> str:
        return f"DELETE FROM {self.waiter_table} WHERE id = {self.parameter('id')} {self.lazily}"

    @statement(Sweep)
    def sweep(self) -> str:
        return f"DELETE FROM {self.waiter_table} WHERE {self.remaining} <= 0"

    @statement(ListWaiters, read=_waiters)
    def waiters(self, command: ListWaiters) -> str:
        return self.waiters_of_all if command.name is None else self.waiters_of_one

    @cached_property
    def waiters_of_all(self) -> str:
        return self._waiters()

    @cached_property
    def waiters_of_one(self) -> str:
        return self._waiters(f" AND lock_name = {self.name_parameter}")

    def _waiters(self, only: str = "") -> str:
        since = self.remaining.replace("expires_at", "since")
        return f"""SELECT lock_name, owner, strategy, since, -{since}
            FROM {self.waiter_table} WHERE {self.lasting}{only} ORDER BY since, id"""

    @statement(ListBlocked, read=_all_blocked)
    def blocked(self) -> str:
        held = f"l.token IS NOT NULL AND {self._lasts('l')}"
        return f"""SELECT w.id, w.lock_name, CASE WHEN {held} THEN l.fence END, w.owner, w.since,
                w.holds
            FROM {self.waiter_table} AS w
            LEFT JOIN {self.lock_table} AS l ON l.lock_name = w.lock_name
            WHERE w.holds IS NOT NULL AND {self._lasts("w")}"""

    def _lasts(self, table: str) -> str:
        """Whether a row of ``table`` has not expired."""
        return self.lasting.replace("expires_at", f"{table}.expires_at")
