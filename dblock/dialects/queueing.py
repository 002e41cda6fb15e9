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

import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ..protocol import commands
from ..protocol.state import Passed
from ..protocol.steps import Query
from ..protocol.term import FIRST_TERM
from .base import NUMBER, TICKET, UNCALLED, Session
from .witness import DURABLE, FIRST_FENCE, KNOWN, NEXT_FENCE, OPEN, Witnessing

# A ticket begins with the channel on which it is called, which is also a number: the session that
# listens has an advisory lock on that, so that it can be told whether it is still there.
_CHANNEL = 8
_PREFIX = "dblock_"
_CLASS = int.from_bytes(b"dblk", "big")
# Everybody may call there, in any words: the server ends a session into whose encoding they cannot
# be translated.
_OCCUPY = f"""SELECT pg_try_advisory_lock({_CLASS}, ('x' || %(channel)s)::bit(32)::int),
    set_config('client_encoding', 'SQL_ASCII', false)"""

# The parts of an entry.
_TOKEN = f"substr(entry, {TICKET + 1}, 32)"
_TERM = f"(substr(entry, {TICKET + 33}, 4)::int * interval '1 ms')"
_SECONDS = f"substr(first.entry, {TICKET + 33}, 4)::int / 1000.0"
_OWNER = f"substr(entry, {TICKET + 37})"

# Who can be called is there as long as its session is: a lock that is got instead ends with the
# statement, and others who look may have it too. Behind a pooler nobody can be, or be told dead.
_CALLED = f"""(entry NOT LIKE '{UNCALLED}%%' AND NOT pg_try_advisory_xact_lock_shared(
    {_CLASS}, ('x' || left(entry, {_CHANNEL}))::bit(32)::int))"""
_THERE = f"(entry LIKE '{UNCALLED}%%' OR {_CALLED})"

_QUEUE = "unnest(waiters) WITH ORDINALITY AS queue (entry, number)"
# It, without those at its head who are not there any more, seldom any.
_ALIVE = f"waiters[(SELECT number FROM {_QUEUE} WHERE {_THERE} LIMIT 1):]"
# Where this waiter stands; how many stand in the queue.
_POSITION = f"(SELECT number FROM {_QUEUE} WHERE {_TOKEN} = %(token)s LIMIT 1)"
_LENGTH = "coalesce(cardinality(waiters), 0)"
# How many stand before one who has just joined.
_STANDS = "array_position(waiters, %(entry)s) - 1"

#: Tells the first who can be called that the name is free, or will be.
CALL = f"""CASE WHEN waiters IS NOT NULL THEN (
    SELECT pg_notify('{_PREFIX}' || left(entry, {_CHANNEL}), left(entry, {NUMBER}))
    FROM unnest(waiters) AS entry WHERE {_CALLED} LIMIT 1) END"""
#: May be lost in a crash: then a lease runs out by itself, a waiter looks for itself.
LAZY = "set_config('synchronous_commit', 'off', true)"
#: Seconds for a row that others have for a moment. Renewals have the same connections.
TURN = 0.025
PATIENT = f"set_config('lock_timeout', '{TURN * 1000:.0f}', true) IS NOT NULL"
# Who leaves is in a hurry no more, and has to be gone.
_LEAVING = 10 * TURN
_STEADY = f"set_config('lock_timeout', '{_LEAVING * 1000:.0f}', true) IS NOT NULL"


class Queueing(Witnessing):
    """Who joins waits for a release that is under way: that sees the waiter, or is seen by it."""

    calls = True

    @property
    def first_grant(self) -> str:
        """The part of a grant that takes a name which nobody has had yet."""
        return f"""INSERT INTO {self.lock_table}
                    (lock_name, fence, token, owner, acquired_at, expires_at)
                SELECT %(name)s, {FIRST_FENCE}, %(token)s, %(owner)s, clock_timestamp(),
                    clock_timestamp() + make_interval(secs => %(ttl)s)
                FROM {self.open}
                WHERE NOT EXISTS (TABLE taken)
                    AND NOT EXISTS (SELECT FROM {self.lock_table} WHERE lock_name = %(name)s)
                ON CONFLICT (lock_name) DO NOTHING"""

    def take(self, name: str, token: str, owner: str, ttl: float) -> Query:
        return Query(
            self._take,
            {"name": name, "token": token, "owner": owner, "ttl": ttl},
            commands.Take(name, token, owner, ttl),
            TURN,
        )

    @cached_property
    def _take(self) -> str:
        # It waits for the row, which others who join have for a moment. Who takes over leaves those
        # before it in the queue who are there, and can be called.
        return f"""WITH mine AS MATERIALIZED (
                SELECT lock_name, coalesce({_POSITION}, {_LENGTH} + 1) AS position, open.epoch
                FROM {self.open}, {self.lock_table} AS k WHERE lock_name = %(name)s AND {PATIENT}
                    AND {self.turn(self.before)} FOR UPDATE OF k
            ), taken AS (
                UPDATE {self.lock_table} AS l SET fence = {NEXT_FENCE},
                    waiters = {self.others("number > mine.position OR number < mine.position AND")},
                    token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + make_interval(secs => %(ttl)s)
                FROM mine WHERE l.lock_name = mine.lock_name
                RETURNING fence, {self.remaining}, {DURABLE}
            ), created AS (
                {self.first_grant} RETURNING fence, {self.remaining}, {DURABLE}
            )
            TABLE taken UNION ALL TABLE created"""

    def join(self, name: str, token: str, owner: str, ttl: float, ticket: str) -> Query:
        term = f"{int(min(ttl, FIRST_TERM) * 1000):04d}"
        return Query(
            self._join,
            {"name": name, "token": token, "entry": f"{ticket}{token}{term}{owner}"},
            commands.Join(name, token, owner, ttl, ticket),
            TURN,
            durable=False,
        )

    @cached_property
    def _join(self) -> str:
        # Whoever it is for may have the name already, by a try whose reply was lost.
        return f"""UPDATE {self.lock_table} SET waiters = CASE
                WHEN waiters IS NULL THEN ARRAY[%(entry)s]
                WHEN {_POSITION} IS NULL THEN array_append({_ALIVE}, %(entry)s)
                ELSE ARRAY(SELECT CASE WHEN {_TOKEN} = %(token)s THEN %(entry)s ELSE entry END
                    FROM {_QUEUE} ORDER BY number) END
            WHERE lock_name = %(name)s AND token IS DISTINCT FROM %(token)s AND {PATIENT}
            RETURNING NULL, NULL, {LAZY}, {self._columns()}, {_STANDS},
                {self.turn(_STANDS)}, {self.seconds}"""

    def release(self, name: str, token: str) -> Query:
        params = {"name": name, "token": token}
        return Query(self._release, params, commands.Release(name, token), TURN, durable=False)

    @cached_property
    def _release(self) -> str:
        # Most often nobody waits, and then it is as small as it can be. May be lost in a crash:
        # then the lease runs out by itself, which only delays reuse. Where somebody joins
        # meanwhile it is judged anew, by the row that has the new queue.
        return f"""UPDATE {self.lock_table} SET token = NULL, expires_at = clock_timestamp()
            WHERE lock_name = %(name)s AND token = %(token)s AND waiters IS NULL AND {PATIENT}
            RETURNING {LAZY}"""

    def pass_on(self, name: str, token: str, passes: bool = True) -> Query:
        return Query(
            self._pass_on,
            {"name": name, "token": token, "passes": passes},
            commands.PassOn(name, token, passes),
            TURN,
            durable=False,
        )

    @cached_property
    def _pass_on(self) -> str:
        # The row is locked first and judged then, with those in the queue who have joined
        # meanwhile. To pass a name on is to grant it: on disk before anybody is told, if the
        # witness allows it, with the next fence, and for no longer than the first term.
        return f"""WITH newest AS MATERIALIZED (
                SELECT lock_name, waiters FROM {self.lock_table}
                WHERE lock_name = %(name)s AND token = %(token)s AND {PATIENT}
                FOR NO KEY UPDATE
            ), first AS MATERIALIZED (
                SELECT entry, number FROM newest, {_QUEUE} WHERE {_THERE} LIMIT 1
            ), next AS MATERIALIZED (
                SELECT entry, number, epoch
                FROM first, LATERAL ({self.epoch(OPEN, KNOWN.replace("%(ttl)s", _SECONDS))}) AS open
                WHERE %(passes)s AND length(entry) > {TICKET} AND entry NOT LIKE '{UNCALLED}%%'
            )
            UPDATE {self.lock_table} AS l SET
                fence = CASE WHEN next.entry IS NULL THEN l.fence
                    ELSE greatest(l.fence, next.epoch) + 1 END,
                token = {_TOKEN.replace("entry", "next.entry")},
                owner = coalesce({_OWNER.replace("entry", "next.entry")}, l.owner),
                acquired_at = CASE WHEN next.entry IS NULL THEN l.acquired_at
                    ELSE clock_timestamp() END,
                expires_at = clock_timestamp()
                    + coalesce({_TERM.replace("entry", "next.entry")}, interval '0'),
                waiters = nullif(l.waiters[coalesce(next.number + 1, first.number):], '{{}}')
            FROM newest LEFT JOIN first ON true LEFT JOIN next ON true
            WHERE l.lock_name = newest.lock_name
            RETURNING CASE
                WHEN next.entry IS NULL THEN {CALL.replace("waiters", "l.waiters")}
                ELSE pg_notify('{_PREFIX}' || left(next.entry, {_CHANNEL}), concat_ws(' ',
                    left(next.entry, {TICKET}), l.fence, extract(epoch FROM l.acquired_at),
                    extract(epoch FROM l.expires_at - l.acquired_at))) END,
                CASE WHEN next.entry IS NULL THEN {LAZY} ELSE {DURABLE} END"""

    def leave(self, name: str, token: str, ticket: str) -> Query:
        return Query(
            f"""UPDATE {self.lock_table} SET waiters = nullif(ARRAY(
                SELECT entry FROM {_QUEUE} WHERE {_TOKEN} <> %(token)s ORDER BY number), '{{}}')
            WHERE lock_name = %(name)s AND waiters IS NOT NULL AND {_POSITION} IS NOT NULL
                AND {_STEADY}
            RETURNING CASE WHEN expires_at <= clock_timestamp() THEN {CALL} END, {LAZY}""",
            {"name": name, "token": token},
            commands.Leave(name, token, ticket),
            _LEAVING,
            durable=False,
        )

    def listen(self, connection: Any, session: Session, token: Callable[[int], str]) -> str | None:
        if session.end is None:  # behind a pooler
            return None
        connection.pgconn.notify_handler = None  # psycopg's decodes what strangers say
        while True:
            channel = token(_CHANNEL // 2)
            if (
                channel != UNCALLED
                and self.ask(connection, Query(_OCCUPY, {"channel": channel}))[0]
            ):
                break
        self.send(connection, Query(f"LISTEN {_PREFIX}{channel}", {}))
        return channel

    def called(self, connection: Any) -> list[tuple[str, Passed | None]]:
        connection.pgconn.consume_input()
        calls = iter(connection.pgconn.notifies, None)
        return [read_call(call.extra.decode("ascii", "replace")) for call in calls]

    # --- the place in the queue --------------------------------------------------------------

    @property
    def seconds(self) -> str:
        """The database's clock in seconds."""
        return "extract(epoch FROM clock_timestamp())::float8"

    @property
    def before(self) -> str:
        # Of those who are still there: who died while it waited is not waited for.
        return f"""(SELECT count(*) FROM unnest(waiters[:coalesce({_POSITION} - 1, {_LENGTH})])
            AS entry WHERE {_THERE})"""

    @property
    def earlier(self) -> str:
        """How many come before one who only comes now, without a ticket."""
        there = f"(SELECT count(*) FROM unnest(waiters) AS entry WHERE {_THERE})"
        return f"CASE WHEN waiters IS NULL THEN 0 ELSE {there} END"

    def others(self, unless: str = "") -> str:
        """The queue when one has taken the name who comes after others in it, or has not joined:
        those stay who can be called."""
        return f"""CASE WHEN waiters IS NOT NULL THEN nullif(ARRAY(
                        SELECT entry FROM {_QUEUE} WHERE {unless} {_CALLED} ORDER BY number
                    ), '{{}}') END"""

    @property
    def standing(self) -> str:
        return f"{_POSITION} IS NOT NULL"

    @property
    def place_columns(self) -> str:
        return f"{super().place_columns}, {self.seconds}"

    def turn(self, before: str) -> str:
        return (
            "(expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR "
            f"expires_at + ({before}) * interval '{self.grace} s' <= clock_timestamp())"
        )


def read_call(message: str) -> tuple[str, Passed | None]:
    """Return the ticket that is called, and the hold that is passed on to it, if one is."""
    ticket, *hold = message.split(" ")
    if len(ticket) == TICKET and len(hold) == 3:
        with contextlib.suppress(ValueError):
            return ticket, Passed(int(hold[0]), float(hold[1]), float(hold[2]))
    return ticket[:NUMBER], None
