"""The waiters' queue on PostgreSQL: an array in the name's row. A release passes the name on to it.

An entry of the queue has everything that a release needs to grant the name to its waiter::

    characters  1-8      -12     -24     -56    -60               -
                channel  number  secret  token  first term in ms  owner
                └─────── ticket ──────┘

A notification that only says "read the row" has the channel and the number in it. The secret is
sent in the one message that passes a name on, so no other session can make a waiter believe that it
holds the name. An earlier version of this code wrote entries of a ticket alone: a release notifies
such a waiter, which then takes the name with a statement of its own. A waiter behind a pooler has
a ticket that nobody can notify (:data:`.UNCALLED`), and polls.
"""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.commands import Join, Leave
from ...protocol.term import FIRST_TERM
from ..readers import shared
from ..replies import read_join
from ..statement import statement
from ..tickets import NUMBER, TICKET, UNCALLED
from .fragments import LAZY, PATIENT, TURN
from .witness import WitnessStatements

# A ticket begins with the channel that its waiter listens on, CHANNEL hexadecimal digits. The
# listening session has an advisory lock on the same number, which shows that it is still alive.
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
        """Return the parts as SQL; ``entry`` is a SQL expression too."""
        return cls(
            token=f"pg_catalog.substr({entry}, {TICKET + 1}, 32)",
            term=f"(pg_catalog.substr({entry}, {TICKET + 33}, 4)::float8 / 1000::float8)",
            owner=f"pg_catalog.substr({entry}, {TICKET + 37})",
        )


_TOKEN = Entry.of("entry").token

# Whether a waiter can be notified: its session is alive, and has an exclusive advisory lock. If
# this statement gets the lock instead, the session is gone. It asks for a shared lock, which
# several statements can have at once, and which ends with its transaction. A waiter behind a pooler
# cannot be notified, and nothing shows whether it is alive.
CALLED = f"""(entry NOT LIKE '{UNCALLED}%%' AND NOT pg_try_advisory_xact_lock_shared(
    {CLASS}, ('x' || pg_catalog.left(entry, {CHANNEL}))::bit(32)::int))"""
THERE = f"(entry LIKE '{UNCALLED}%%' OR {CALLED})"

QUEUE = "pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number)"
# A selection of the queue as an array; NULL if it is empty.
IN_ORDER = "pg_catalog.array_agg(entry ORDER BY number)"
# The queue without the dead waiters at its head. Usually there are none.
_ALIVE = f"waiters[(SELECT number FROM {QUEUE} WHERE {THERE} LIMIT 1):]"
# This waiter's position in the queue; the queue's length.
POSITION = f"(SELECT number FROM {QUEUE} WHERE {_TOKEN} = %(token)s LIMIT 1)"
LENGTH = "coalesce(pg_catalog.cardinality(waiters), 0)"
# The queue without this waiter.
WITHOUT_ME = f"""(SELECT {IN_ORDER} FROM {QUEUE} WHERE {_TOKEN} <> %(token)s)"""
# How many waiters are before a waiter that has just joined.
_STANDS = "pg_catalog.array_position(waiters, %(entry)s) - 1"
# Whether a waiter in the queue is a reader; and whether the requester is a reader too, because
# readers do not block each other.
_READER = shared(_TOKEN)
_WITH_ME = f"{shared('%(token)s')} AND {_READER}"

# Seconds. Leaving must succeed, so it waits ten times as long for the row.
_LEAVING = 10 * TURN
_STEADY = f"set_config('lock_timeout', '{_LEAVING * 1000:.0f}', true) IS NOT NULL"


def channel(entry: str = "entry") -> str:
    """Return, as SQL, the channel that the waiter of an entry listens on."""
    return f"'{PREFIX}' || pg_catalog.left({entry}, {CHANNEL})"


# Notifies a waiter in the queue, which then reads the row.
_TOLD = f"pg_notify({channel()}, pg_catalog.left(entry, {NUMBER}))"


def call(waiters: str = "waiters") -> str:
    """Notify the first waiter of a queue that can be notified: the name is free, or will be."""
    return f"""CASE WHEN {waiters} IS NOT NULL THEN (
    SELECT {_TOLD}
    FROM pg_catalog.unnest({waiters}) AS entry WHERE {CALLED} LIMIT 1) END"""


#: Notify the readers before the first living writer of the queue: other readers have the name.
CALL_READERS = f"""(SELECT
        pg_catalog.count({_TOLD})
    FROM pg_catalog.unnest(waiters[:coalesce((
        SELECT min(number) FROM {QUEUE} WHERE NOT {_READER} AND {THERE}), {LENGTH})]) AS entry
    WHERE {_READER} AND {CALLED})"""


def _entry(dialect: object, command: Join) -> dict[str, object]:
    term = f"{int(min(command.ttl, FIRST_TERM) * 1000):04d}"
    return {"entry": f"{command.ticket}{command.token}{term}{command.owner}"}


class QueueStatements(WitnessStatements):
    """A waiter that joins waits for the row while a release has it locked. So either the release
    sees the waiter in the queue, or the waiter sees that the name is free."""

    @statement(Join, read=read_join, lock_timeout=TURN, parameters=_entry)
    def join(self) -> str:
        # The requester may hold the name already, from an earlier try whose reply was lost.
        stands = f"CASE WHEN {shared('%(token)s')} THEN {self.ahead} ELSE {_STANDS} END"
        return f"""UPDATE {self.lock_table} SET waiters = CASE
                WHEN waiters IS NULL THEN ARRAY[%(entry)s]
                WHEN {POSITION} IS NULL THEN pg_catalog.array_append({_ALIVE}, %(entry)s)
                ELSE ARRAY(SELECT CASE WHEN {_TOKEN} = %(token)s THEN %(entry)s ELSE entry END
                    FROM {QUEUE} ORDER BY number) END
            WHERE lock_name = %(name)s AND token IS DISTINCT FROM %(token)s AND {PATIENT}
            RETURNING NULL, NULL, {LAZY}, {self.columns}, {stands},
                {self.is_available(stands)}, {self.seconds}"""

    @statement(Leave, lock_timeout=_LEAVING)
    def leave(self) -> str:
        return f"""UPDATE {self.lock_table} SET waiters = {WITHOUT_ME}
            WHERE lock_name = %(name)s AND waiters IS NOT NULL AND {POSITION} IS NOT NULL
                AND {_STEADY}
            RETURNING CASE WHEN expires_at <= clock_timestamp() THEN {call()} END,
                {LAZY}, CASE WHEN {shared()} THEN {CALL_READERS} END"""

    # --- the position in the queue -----------------------------------------------------------

    @property
    def seconds(self) -> str:
        """The database's clock in seconds."""
        return "extract(epoch FROM clock_timestamp())::float8"

    @property
    def ahead(self) -> str:
        # Living waiters only: no waiter waits for a dead one. Readers do not wait for each other.
        before = f"waiters[:coalesce({POSITION} - 1, {LENGTH})]"
        return f"""(SELECT count(*) FROM pg_catalog.unnest({before}) AS entry
            WHERE NOT ({_WITH_ME}) AND {THERE})"""

    @property
    def earlier(self) -> str:
        """How many waiters come before a requester that has no ticket."""
        there = f"(SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE {THERE})"
        return f"CASE WHEN waiters IS NULL THEN 0 ELSE {there} END"

    def others(self, unless: str = "") -> str:
        """The queue that remains when the name goes to a waiter behind others, or to a requester
        that has not joined: the waiters that can be notified.

        ``unless`` is the condition's beginning, its last operator included.
        """
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
