"""The statements over the table of waiters, which are nearly the same for all databases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..lock_state import WaiterState
from ..protocol import commands
from ..protocol.deadlock import Blocked
from ..protocol.steps import Query, Reply
from .dialect import Dialect
from .values import text, utc


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

    def register(
        self,
        id: str,
        name: str,
        *,
        strategy: str,
        owner: str,
        waited: float,
        lasts: float,
        holds: Mapping[str, int | None],
    ) -> Query[int]:
        values = {
            "id": id,
            "name": self.key(name),
            "strategy": strategy,
            "owner": owner,
            "since": self.shift(-waited),
            "expiry": self.shift(lasts),
            "holds": json.dumps(holds) if holds else None,
        }
        marks = {column: self.parameter(column) for column in values}
        marks["since"] = self.later.format(marks["since"])
        marks["expiry"] = self.later.format(marks["expiry"])
        return Query(
            f"""INSERT INTO {self.waiter_table}
                (id, lock_name, strategy, owner, since, expires_at, holds)
            VALUES ({", ".join(marks.values())}) {self.upsert} {self.lazily}""",
            values,
            commands.Register(id, name, strategy, owner, waited, lasts, holds),
            self.patience,
            durable=not self.lazily,
        )

    def unregister(self, id: str) -> Query[int]:
        mark = self.parameter("id")
        return Query(
            f"DELETE FROM {self.waiter_table} WHERE id = {mark} {self.lazily}",
            {"id": id},
            commands.Unregister(id),
            self.patience,
            durable=not self.lazily,
        )

    def sweep(self) -> Query[int]:
        return Query(
            f"DELETE FROM {self.waiter_table} WHERE {self.remaining} <= 0",
            {},
            commands.Sweep(),
            self.patience,
        )

    def waiters(self, name: str | None = None) -> Query[dict[str, tuple[WaiterState, ...]]]:
        only = "" if name is None else f" AND lock_name = {self.name_parameter}"
        since = self.remaining.replace("expires_at", "since")
        return Query(
            f"""SELECT lock_name, owner, strategy, since, -{since}
            FROM {self.waiter_table} WHERE {self.lasting}{only} ORDER BY since, id""",
            {} if name is None else {"name": self.key(name)},
            commands.ListWaiters(name),
            self.patience,
            read=_waiters,
        )

    def blocked(self) -> Query[list[Blocked]]:
        held = f"l.token IS NOT NULL AND {self._lasts('l')}"
        return Query(
            f"""SELECT w.id, w.lock_name, CASE WHEN {held} THEN l.fence END, w.owner, w.since,
                w.holds
            FROM {self.waiter_table} AS w
            LEFT JOIN {self.lock_table} AS l ON l.lock_name = w.lock_name
            WHERE w.holds IS NOT NULL AND {self._lasts("w")}""",
            {},
            commands.ListBlocked(),
            self.patience,
            read=_all_blocked,
        )

    def _lasts(self, table: str) -> str:
        """Whether a row of ``table`` has not expired."""
        return self.lasting.replace("expires_at", f"{table}.expires_at")


def _waiters(reply: Reply) -> dict[str, tuple[WaiterState, ...]]:
    """Read the waiters for each name."""
    found: dict[str, tuple[WaiterState, ...]] = {}
    for key, owner, strategy, since, waited in reply.rows:
        moment = utc(since)
        assert moment is not None
        waiter = WaiterState(owner, strategy, moment, float(waited))
        found[text(key)] = (*found.get(text(key), ()), waiter)
    return found


def _all_blocked(reply: Reply) -> list[Blocked]:
    return list(map(_blocked, reply.rows))


def _blocked(row: Sequence[Any]) -> Blocked:
    id, key, fence, owner, since, holds = row
    moment = utc(since)
    assert moment is not None
    return Blocked(id, text(key), fence, owner, moment, json.loads(holds))
