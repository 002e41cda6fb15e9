"""Who waits on PostgreSQL: a queue in the name's row, and notifications to the first in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from ..protocol import commands
from ..protocol.steps import Query
from .base import UNCALLED, Session
from .gating import ENTER, Gating
from .witness import DURABLE, FIRST_FENCE, NEXT_FENCE

# A ticket begins with the channel on which it is called, which is also a number: the session that
# listens has an advisory lock on that, so that it can be told whether it is still there.
_CHANNEL = 8
_PREFIX = "dblock_"
_CLASS = int.from_bytes(b"dblk", "big")
# Everybody may call there, in any words: the server ends a session into whose encoding they cannot
# be translated.
_OCCUPY = f"""SELECT pg_try_advisory_lock({_CLASS}, ('x' || %(channel)s)::bit(32)::int),
    set_config('client_encoding', 'SQL_ASCII', false)"""
# Behind a pooler nobody listens, and who is still there cannot be told.
_LISTENS = f"""(ticket LIKE '{UNCALLED}%%' OR NOT
    pg_try_advisory_xact_lock({_CLASS}, ('x' || left(ticket, {_CHANNEL}))::bit(32)::int))"""

# The queue without those at its head who are not there any more, seldom any. A lock that is got
# instead ends with the statement.
ALIVE = f"""CASE WHEN l.waiters IS NOT NULL THEN nullif(l.waiters[(
    SELECT number FROM unnest(l.waiters) WITH ORDINALITY AS queue (ticket, number)
    WHERE {_LISTENS} LIMIT 1):], '{{}}') END"""
CALL = f"""CASE WHEN waiters IS NOT NULL AND waiters[1] NOT LIKE '{UNCALLED}%%'
    THEN pg_notify('{_PREFIX}' || left(waiters[1], {_CHANNEL}), waiters[1]) END"""
# May be lost in a crash: then a lease runs out by itself, a waiter looks for itself.
LAZY = "set_config('synchronous_commit', 'off', true)"
# Seconds for a row that others have for a moment. Renewals have the same connections.
TURN = 0.025
PATIENT = f"set_config('lock_timeout', '{TURN * 1000:.0f}', true) IS NOT NULL"
# Who leaves is in a hurry no more, and has to be gone.
_LEAVING = 10 * TURN
_STEADY = f"set_config('lock_timeout', '{_LEAVING * 1000:.0f}', true) IS NOT NULL"

# How many stand in the queue.
LAST = "coalesce(cardinality(waiters), 0)"
# Where a ticket stands; and one that comes in the place of another.
_POSITION = "array_position(waiters, %(ticket)s)"
_PLACE = f"coalesce({_POSITION}, array_position(waiters, %(former)s))"


class Calling(Gating):
    """A refused try joins in its own statement: a release sees the waiter, or is seen by it."""

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

    def grant_or_join(
        self, name: str, token: str, owner: str, ttl: float, ticket: str, former: str | None
    ) -> Query:
        """Take the name if it is the ticket's turn, or else let that stand in the queue.

        In the place of the ``former``, if that stands there.
        """
        # It waits for the row, which others who join have for a moment. Who joins disturbs no
        # guard, and who stands in the queue already and is refused writes nothing.
        return Query(
            self._grant_or_join,
            self.asked(name, token, owner, ttl) | {"ticket": ticket, "former": former or ticket},
            commands.Join(name, token, owner, ttl, ticket, former),
            TURN,
            durable=False,
        )

    def asked(self, name: str, token: str, owner: str, ttl: float) -> dict[str, Any]:
        """Return what every statement that takes a name is given."""
        return {
            "name": name,
            "token": token,
            "owner": owner,
            "ttl": ttl,
            "gate": self.gate(name),
        }

    @cached_property
    def _taken(self) -> str:
        return f"""taken AS (
                UPDATE {self.lock_table} AS l SET fence = {NEXT_FENCE},
                    waiters = nullif(l.waiters[mine.position + 1:], '{{}}'),
                    token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + make_interval(secs => %(ttl)s)
                FROM mine WHERE l.lock_name = mine.lock_name RETURNING l.fence, l.expires_at
            )"""

    @cached_property
    def _joined(self) -> str:
        return f"""joined AS (
                UPDATE {self.lock_table} AS l
                SET waiters = CASE WHEN array_position(l.waiters, %(former)s) IS NULL
                    THEN array_append({ALIVE}, %(ticket)s)
                    ELSE array_replace(l.waiters, %(former)s, %(ticket)s) END
                FROM refused WHERE l.lock_name = refused.lock_name
                RETURNING l.lock_name, l.fence, l.token, l.owner, l.acquired_at, l.expires_at,
                    array_position(l.waiters, %(ticket)s) - 1 AS before
            )"""

    def _told(self, granted: str) -> str:
        return f"""SELECT fence, {self.remaining}, {DURABLE},
                NULL, NULL, NULL, NULL, NULL::timestamptz, NULL::timestamptz, NULL, NULL, NULL
            FROM {granted}
            UNION ALL
            SELECT NULL, NULL, {LAZY},
                lock_name, fence, token, owner, acquired_at, expires_at, {self.remaining},
                before, {self.turn("before")}
            FROM joined"""

    @cached_property
    def _grant_or_join(self) -> str:
        newcomer = f" + CASE WHEN {_PLACE} IS NULL THEN {self.gated} ELSE 0 END"
        return f"""WITH mine AS MATERIALIZED (
                SELECT lock_name, {_PLACE} AS position, open.epoch
                FROM {self.open}, {self.lock_table} AS k WHERE lock_name = %(name)s AND {PATIENT}
                    AND {self.turn(_before(_PLACE) + newcomer)} FOR UPDATE OF k
            ), {self._taken}, created AS (
                {self.first_grant} RETURNING fence, expires_at
            ), refused AS MATERIALIZED (
                SELECT lock_name FROM {self.lock_table} WHERE lock_name = %(name)s
                    AND {_POSITION} IS NULL
                    AND NOT EXISTS (TABLE taken) AND NOT EXISTS (TABLE created)
                    AND EXISTS (SELECT FROM {self.open})
                FOR NO KEY UPDATE
            ), {self._joined} {self._told("(TABLE taken UNION ALL TABLE created) AS granted")}"""

    def knock(
        self, name: str, token: str, owner: str, ttl: float, ticket: str | None, patience: float
    ) -> Query:
        return Query(
            self._knock,
            self.asked(name, token, owner, ttl)
            | {"ticket": ticket, "former": ticket, "patience": str(max(1, int(patience * 1000)))},
            commands.Knock(name, token, owner, ttl, ticket),
            patience,
            durable=False,
        )

    @cached_property
    def _knock(self) -> str:
        # The snapshot is older than the wait: the row is locked first, which reads its newest
        # version, and judged then. Not yet as a grant locks it, since who joins disturbs no guard.
        return f"""WITH gate AS MATERIALIZED (
                SELECT {ENTER} AS held
                FROM (SELECT set_config('lock_timeout', %(patience)s, true)) AS patience
            ), newest AS MATERIALIZED (
                SELECT k.lock_name, k.token, k.expires_at, k.waiters, open.epoch
                FROM gate, {self.open}, {self.lock_table} AS k
                WHERE lock_name = %(name)s FOR NO KEY UPDATE OF k
            ), mine AS MATERIALIZED (
                SELECT k.lock_name, NULL::int AS position, free.epoch
                FROM (SELECT lock_name, epoch FROM newest WHERE {self.turn(LAST)}) AS free
                JOIN {self.lock_table} AS k ON k.lock_name = free.lock_name FOR UPDATE OF k
            ), {self._taken}, refused AS MATERIALIZED (
                SELECT lock_name FROM newest WHERE NOT EXISTS (TABLE taken)
            ), {self._joined} SELECT told.*, gate.held FROM gate, ({self._told("taken")}) AS told"""

    def leave(self, name: str, ticket: str) -> Query:
        return Query(
            f"""UPDATE {self.lock_table}
            SET waiters = nullif(array_remove(waiters, %(ticket)s), '{{}}')
            WHERE lock_name = %(name)s AND array_position(waiters, %(ticket)s) IS NOT NULL
                AND {_STEADY}
            RETURNING CASE WHEN expires_at <= clock_timestamp() THEN {CALL} END, {LAZY}""",
            {"name": name, "ticket": ticket},
            commands.Leave(name, ticket),
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

    def called(self, connection: Any) -> list[str]:
        connection.pgconn.consume_input()
        calls = iter(connection.pgconn.notifies, None)
        return [call.extra.decode("ascii", "replace") for call in calls]

    @property
    def before(self) -> str:
        return _before(_POSITION)

    @property
    def earlier(self) -> str:
        """How many come before one who only comes now, without a ticket."""
        return f"CASE WHEN waiters IS NULL THEN 0 ELSE {_before('NULL')} END + {self.gated}"

    @property
    def standing(self) -> str:
        return f"{_POSITION} IS NOT NULL"

    def turn(self, before: str) -> str:
        return (
            "(expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR "
            f"expires_at + ({before}) * interval '{self.grace} s' <= clock_timestamp())"
        )


def _before(position: str) -> str:
    """How many stand before a position, or in all where that is NULL.

    Of those who are still there: who died while it waited is not waited for.
    """
    return f"""(SELECT count(*) FROM unnest(waiters[:coalesce({position} - 1, {LAST})]) AS ticket
            WHERE {_LISTENS})"""
