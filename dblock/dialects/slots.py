"""The slots of a semaphore: names with a number, and a limit beside them.

The limit is in the table of values, with the fence 0, which no hold has. A value with another fence
belongs to an election; its name is never a semaphore's.

The slots of ``api`` are ``api#1``, ``api#2`` and so on. Each is a name like any other, with a row
and a fence of its own. A waiter for a slot first takes the name ``api`` itself: the turnstile.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

from ..protocol import commands
from ..protocol.slots import slot_name
from ..protocol.state import Granted, Slots
from ..protocol.steps import Query, Reply
from .dialect import Dialect
from .replies import read_grant, read_queued, read_slot


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

    def grant_slot(
        self,
        name: str,
        limit: int,
        token: str,
        owner: str,
        ttl: float,
        *,
        turnstile: str,
        first: int,
        known: bool = False,
    ) -> Query[Granted | None]:
        command = commands.GrantSlot(name, limit, token, owner, ttl, turnstile, first, known)
        asked = self.slot_parameters(command)
        if not known:
            return Query(self._grant_slot, asked, command, self.slot_patience, read=read_slot)
        slot = slot_name(name, first + 1)
        return Query(
            self._grant_known_slot,
            {**asked, "slot": self.key(slot)},
            command,
            self.slot_patience,
            read=lambda reply: _named(slot, self.read_known_slot(reply, ttl)),
        )

    @cached_property
    @abstractmethod
    def _grant_slot(self) -> str:
        """The statement that takes the first free slot; it returns the fence, the remaining seconds
        and the slot's name."""

    @cached_property
    @abstractmethod
    def _grant_known_slot(self) -> str:
        """The statement that takes the ``slot``."""

    def read_known_slot(self, reply: Reply, ttl: float) -> Granted | None:
        """Read the fence and the seconds to the expiry from that statement's reply."""
        return read_grant(reply)

    @property
    def slot_patience(self) -> float | None:
        """Seconds that it may wait for locks: not for a slot that another session is taking."""
        return self.patience

    def slot_parameters(self, command: commands.GrantSlot) -> dict[str, object]:
        """Return the parameters of the statements that take a slot."""
        return {
            "name": self.key(command.name),
            "limit": command.limit,
            "value": str(command.limit),
            "token": command.token,
            "owner": command.owner,
            "ttl": command.ttl,
            "turnstile": command.turnstile,
            "first": command.first,
        }

    def look_at_slots(self, name: str, limit: int) -> Query[Slots]:
        names = [name, *(slot_name(name, number) for number in range(1, limit + 1))]
        keys = {f"name{number}": self.key(one) for number, one in enumerate(names)}
        value = "CASE WHEN fence = 0 THEN value ELSE '0' END"  # which is no limit
        stored = f"SELECT {value} FROM {self.value_table} WHERE lock_name = {self.name_parameter}"
        return Query(
            f"""SELECT ({stored}), {self.columns}, NULL, {self.anybodys}
            FROM (SELECT 1 AS one) AS always LEFT JOIN {self.lock_table}
                ON lock_name IN ({", ".join(map(self.parameter, keys))}){self.complete}""",
            {"name": self.key(name), **keys},
            commands.LookAtSlots(name, limit),
            self.patience,
            read=_slots,
        )

    def set_limit(self, name: str, limit: int, *, anew: bool) -> Query[int]:
        return Query(
            f"""INSERT INTO {self.value_table} (lock_name, fence, value, written_at)
            VALUES ({self.name_parameter}, 0, {self.parameter("value")}, {self.clock})
            {self.replaces_limit if anew else self.keeps_limit}{self.durably}""",
            {"name": self.key(name), "value": json.dumps(limit)},
            commands.SetLimit(name, limit, anew),
            self.patience,
        )


def _named(slot: str, granted: Granted | None) -> Granted | None:
    return None if granted is None else Granted(granted.fence, granted.remaining, slot)


def _slots(reply: Reply) -> Slots:
    stored = reply.rows[0][0]
    limit = None if stored is None else json.loads(stored)
    rows = [read_queued(row) for _, *row in reply.rows if row[0] is not None]
    return Slots(
        limit if limit is None or type(limit) is int else 0,
        {one.row.name: one for one in rows},
    )
