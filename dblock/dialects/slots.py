"""The slots of a semaphore: names with a number, and a limit beside them.

The limit is in the table of values, with the fence 0, which no hold has. A value with another fence
belongs to an election; its name is never a semaphore's.

The slots of ``api`` are ``api#1``, ``api#2`` and so on. Each is a name like any other, with a row
and a fence of its own. A waiter for a slot first takes the name ``api`` itself: the turnstile.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import ClassVar

from ..protocol.commands import GrantSlot, LookAtSlots, SetLimit
from ..protocol.slots import slot_name
from ..protocol.state import Granted, Slots
from .dialect import Dialect
from .query import Result
from .replies import read_grant, read_queued
from .statement import statement
from .values import text


def slot_parameters(dialect: Dialect, command: GrantSlot) -> dict[str, object]:
    """Return the parameters of a statement that takes a slot: the limit as it is stored, and with
    ``known`` the slot."""
    limit: dict[str, object] = {"value": json.dumps(command.limit)}
    return limit | {"slot": dialect.key(_known_slot(command))} if command.known else limit


def read_slot(_: Dialect, command: GrantSlot, result: Result) -> Granted | None:
    """Read a grant as :func:`.read_grant` does, and the slot's name from the third column if the
    statement chose the slot."""
    granted = read_grant(result)
    if granted is None or command.known:
        return read_known_slot(command, granted)
    return granted._replace(name=text(result.rows[0][2]))


def read_known_slot(command: GrantSlot, granted: Granted | None) -> Granted | None:
    """Return the grant of the only slot that was tried."""
    return None if granted is None else granted._replace(name=_known_slot(command))


def _known_slot(command: GrantSlot) -> str:
    return slot_name(command.name, command.first + 1)


def _numbered(dialect: Dialect, command: LookAtSlots) -> dict[str, object]:
    """Return the names of the turnstile and the slots as parameters."""
    numbers = range(1, command.limit + 1)
    names = [command.name, *(slot_name(command.name, number) for number in numbers)]
    return {f"name{number}": dialect.key(one) for number, one in enumerate(names)}


def _slots(result: Result) -> Slots:
    stored = result.rows[0][0]
    limit = None if stored is None else json.loads(stored)
    rows = [read_queued(row) for _, *row in result.rows if row[0] is not None]
    return Slots(
        limit if limit is None or type(limit) is int else 0,
        {one.row.name: one for one in rows},
    )


class SlotStatements(Dialect):
    """The statements over slots, nearly the same for all databases."""

    #: Ends a statement that must be on disk before the client learns of it.
    durably: ClassVar[str] = ""
    #: Ends the statement that writes a limit: an existing limit stays.
    keeps_limit: ClassVar[str] = "ON CONFLICT (lock_name) DO NOTHING"

    @property
    def replaces_limit(self) -> str:
        """Ends the statement that writes a limit: an existing limit is replaced."""
        return f"""ON CONFLICT (lock_name)
            DO UPDATE SET value = excluded.value, written_at = excluded.written_at
            WHERE {self.value_table}.fence = 0"""

    @property
    @abstractmethod
    def anybodys(self) -> str:
        """Whether a name is free for a requester that has not joined its queue."""

    @property
    def admits(self) -> str:
        """Whether a semaphore has this limit, and a turnstile that lets the requester pass."""
        name, value = self.name_parameter, self.parameter("value")
        return f"""(SELECT value FROM {self.value_table} WHERE lock_name = {name} AND fence = 0)
                = {value}
            AND NOT EXISTS ({self.barrier})"""

    @property
    def barrier(self) -> str:
        """Select the turnstile's row if the turnstile keeps the requester out."""
        name = self.name_parameter
        return f"SELECT 1 FROM {self.lock_table} WHERE lock_name = {name} AND {self.keeps_out}"

    @property
    def keeps_out(self) -> str:
        """Whether by its row another token has the turnstile, or others come first there."""
        turnstile = self.parameter("turnstile")
        return f"NOT {self.anybodys} AND (token IS NULL OR token <> {turnstile})"

    @statement(LookAtSlots, read=_slots, parameters=_numbered)
    def look_at_slots(self, command: LookAtSlots) -> str:
        keys = ", ".join(map(self.parameter, _numbered(self, command)))
        # 0 and -1 are no limits: the fence of an election is positive, of a rate limit negative.
        value = "CASE WHEN fence = 0 THEN value WHEN fence < 0 THEN '-1' ELSE '0' END"
        stored = f"SELECT {value} FROM {self.value_table} WHERE lock_name = {self.name_parameter}"
        return f"""SELECT ({stored}), {self.columns}, NULL, {self.anybodys}
            FROM (SELECT 1 AS one) AS always LEFT JOIN {self.lock_table}
                ON lock_name IN ({keys}){self.complete}"""

    @statement(SetLimit, parameters=lambda _, command: {"value": json.dumps(command.limit)})
    def set_limit(self, command: SetLimit) -> str:
        return f"""INSERT INTO {self.value_table} (lock_name, fence, value, written_at)
            VALUES ({self.name_parameter}, 0, {self.parameter("value")}, {self.clock})
            {self.replaces_limit if command.anew else self.keeps_limit}{self.durably}"""
