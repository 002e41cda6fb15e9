"""Who waits on PostgreSQL: a queue in the name's row, out of which a release passes the name on.

An entry of the queue says all that a release needs to make the name its waiter's::

    characters  1-8      -12     -24     -56    -60               -
                channel  number  secret  token  first term in ms  owner
                └─────── ticket ──────┘

Who is only called, to look, is told the number. The secret is in the one message that passes a name
on: so nobody else can tell a waiter that a name is its own. An entry with a ticket alone is by code
of an earlier version, or of a waiter behind a pooler, and is called to take the name by itself.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from ...protocol import commands
from ...protocol.state import Granted, Queued
from ...protocol.steps import Query
from ...protocol.term import FIRST_TERM
from ..dialect import read_join
from ..readers import shared
from ..tickets import NUMBER, TICKET, UNCALLED
from .fragments import LAZY, PATIENT, TURN
from .witness import WitnessStatements

# A ticket begins with the channel on which it is called, which is also a number: the session that
# listens has an advisory lock on that, so that it can be told whether it is still there.
CHANNEL = 8
PREFIX = "dblock_"
CLASS = int.from_bytes(b"dblk", "big")


class Entry(NamedTuple):
    """The parts of an entry of the queue; the term is in seconds."""

    token: str
    term: str
    owner: str

    @classmethod
    def of(cls, entry: str) -> Entry:
        """Return them as SQL, of an entry that is SQL too."""
        return cls(
            token=f"pg_catalog.substr({entry}, {TICKET + 1}, 32)",
            term=f"(pg_catalog.substr({entry}, {TICKET + 33}, 4)::float8 / 1000::float8)",
            owner=f"pg_catalog.substr({entry}, {TICKET + 37})",
        )


_TOKEN = Entry.of("entry").token

# Who can be called is there as long as its session is: a lock that is got instead ends with the
# statement, and others who look may have it too. Behind a pooler nobody can be, or be told dead.
CALLED = f"""(entry NOT LIKE '{UNCALLED}%%' AND NOT pg_try_advisory_xact_lock_shared(
    {CLASS}, ('x' || pg_catalog.left(entry, {CHANNEL}))::bit(32)::int))"""
THERE = f"(entry LIKE '{UNCALLED}%%' OR {CALLED})"

QUEUE = "pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number)"
# Some of it, as an array; NULL if that is nobody.
IN_ORDER = "pg_catalog.array_agg(entry ORDER BY number)"
# It, without those at its head who are not there any more, seldom any.
_ALIVE = f"waiters[(SELECT number FROM {QUEUE} WHERE {THERE} LIMIT 1):]"
# Where this waiter stands; how many stand in the queue.
POSITION = f"(SELECT number FROM {QUEUE} WHERE {_TOKEN} = %(token)s LIMIT 1)"
LENGTH = "coalesce(pg_catalog.cardinality(waiters), 0)"
# The queue without this waiter.
WITHOUT_ME = f"""(SELECT {IN_ORDER} FROM {QUEUE} WHERE {_TOKEN} <> %(token)s)"""
# How many stand before one who has just joined.
_STANDS = "pg_catalog.array_position(waiters, %(entry)s) - 1"
# Whether one who stands in the queue is a reader; and whether who asks is one too, so that the
# other is not in its way.
_READER = shared(_TOKEN)
_WITH_ME = f"{shared('%(token)s')} AND {_READER}"

# Who leaves is in a hurry no more, and has to be gone.
_LEAVING = 10 * TURN
_STEADY = f"set_config('lock_timeout', '{_LEAVING * 1000:.0f}', true) IS NOT NULL"


def channel(entry: str = "entry") -> str:
    """Return the channel on which the waiter of an entry listens."""
    return f"'{PREFIX}' || pg_catalog.left({entry}, {CHANNEL})"


# Tells one who stands in the queue to look.
_TOLD = f"pg_notify({channel()}, pg_catalog.left(entry, {NUMBER}))"


def call(waiters: str = "waiters") -> str:
    """Tell the first of a queue who can be called that the name is free, or will be."""
    return f"""CASE WHEN {waiters} IS NOT NULL THEN (
    SELECT {_TOLD}
    FROM pg_catalog.unnest({waiters}) AS entry WHERE {CALLED} LIMIT 1) END"""


#: Tell the readers of a queue that others have the name, all those before the first writer.
CALL_READERS = f"""(SELECT
        pg_catalog.count({_TOLD})
    FROM pg_catalog.unnest(waiters[:coalesce((
        SELECT min(number) FROM {QUEUE} WHERE NOT {_READER} AND {THERE}), {LENGTH})]) AS entry
    WHERE {_READER} AND {CALLED})"""


class QueueStatements(WitnessStatements):
    """Who joins waits for a release that is under way: that sees the waiter, or is seen by it."""

    can_notify = True

    def join(
        self, name: str, token: str, owner: str, ttl: float, ticket: str, *, yields: bool = False
    ) -> Query[Granted | Queued | None]:
        term = f"{int(min(ttl, FIRST_TERM) * 1000):04d}"
        return Query(
            self._join,
            {"name": name, "token": token, "entry": f"{ticket}{token}{term}{owner}"},
            commands.Join(name, token, owner, ttl, ticket, yields),
            TURN,
            durable=False,
            read=read_join,
        )

    @cached_property
    def _join(self) -> str:
        # Whoever it is for may have the name already, by a try whose reply was lost.
        stands = f"CASE WHEN {shared('%(token)s')} THEN {self.ahead} ELSE {_STANDS} END"
        return f"""UPDATE {self.lock_table} SET waiters = CASE
                WHEN waiters IS NULL THEN ARRAY[%(entry)s]
                WHEN {POSITION} IS NULL THEN pg_catalog.array_append({_ALIVE}, %(entry)s)
                ELSE ARRAY(SELECT CASE WHEN {_TOKEN} = %(token)s THEN %(entry)s ELSE entry END
                    FROM {QUEUE} ORDER BY number) END
            WHERE lock_name = %(name)s AND token IS DISTINCT FROM %(token)s AND {PATIENT}
            RETURNING NULL, NULL, {LAZY}, {self.columns}, {stands},
                {self.is_available(stands)}, {self.seconds}"""

    def leave(self, name: str, token: str, ticket: str) -> Query[int]:
        return Query(
            f"""UPDATE {self.lock_table} SET waiters = {WITHOUT_ME}
            WHERE lock_name = %(name)s AND waiters IS NOT NULL AND {POSITION} IS NOT NULL
                AND {_STEADY}
            RETURNING CASE WHEN expires_at <= clock_timestamp() THEN {call()} END,
                {LAZY}, CASE WHEN {shared()} THEN {CALL_READERS} END""",
            {"name": name, "token": token},
            commands.Leave(name, token, ticket),
            _LEAVING,
            durable=False,
        )

    # --- the place in the queue --------------------------------------------------------------

    @property
    def seconds(self) -> str:
        """The database's clock in seconds."""
        return "extract(epoch FROM clock_timestamp())::float8"

    @property
    def ahead(self) -> str:
        # Of those who are still there: who died while it waited is not waited for. Nor do readers
        # wait for each other.
        before = f"waiters[:coalesce({POSITION} - 1, {LENGTH})]"
        return f"""(SELECT count(*) FROM pg_catalog.unnest({before}) AS entry
            WHERE NOT ({_WITH_ME}) AND {THERE})"""

    @property
    def earlier(self) -> str:
        """How many come before one who only comes now, without a ticket."""
        there = f"(SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE {THERE})"
        return f"CASE WHEN waiters IS NULL THEN 0 ELSE {there} END"

    def others(self, unless: str = "") -> str:
        """The queue when one has taken the name who comes after others in it, or has not joined:
        those stay who can be called."""
        return f"""CASE WHEN waiters IS NOT NULL THEN (
                        SELECT {IN_ORDER} FROM {QUEUE} WHERE {unless} {CALLED}
                    ) END"""

    @property
    def enqueued(self) -> str:
        return f"{POSITION} IS NOT NULL"

    @property
    def position_columns(self) -> str:
        return f"{super().position_columns}, {self.seconds}"

    def is_available(self, ahead: str) -> str:
        return (
            "(expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR "
            f"expires_at + ({ahead})::float8 * interval '{self.grace} s' <= clock_timestamp())"
        )
