"""The lease on PostgreSQL: taken, renewed, released, and passed on to the first who waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ...protocol import commands
from ...protocol.state import Granted, Renewal
from ...protocol.steps import Query
from ..dialect import read_attached, read_grant, read_renewed
from ..readers import shared
from ..tickets import TICKET, UNCALLED
from .fragments import DURABLE, FREE, LAZY, PATIENT, REMAINING, TURN
from .queue import LENGTH, POSITION, QUEUE, THERE, Entry, QueueStatements, call, channel
from .witness import FIRST_FENCE, NEXT_FENCE, OPEN, known


class LeaseStatements(QueueStatements):
    """Expiry is written and compared with ``clock_timestamp()``, and a new one only after the row
    is locked: ``now()`` is the transaction's start, and even ``clock_timestamp()`` is read before a
    wait when the statement that waits also reads it.
    """

    def grant_known(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        asked = {"name": name, "token": token, "owner": owner, "ttl": ttl}
        command = commands.Grant(name, token, owner, ttl, known=True)
        return Query(self._grant_known, asked, command, 0.0, read=read_grant)

    @cached_property
    def _grant_known(self) -> str:
        # Every node of a plan is made ready each time, whether it runs or not: that of a grant to
        # anybody takes the server twice as long.
        return self._taken(f"waiters IS NULL AND {FREE}")

    def _taken(self, free: str, queue: str = "", name: str = "%(name)s") -> str:
        """Return the statement that takes a ``name`` which has a row, if it is ``free``."""
        # `mine` reads before it locks, so a refused try writes nothing: no WAL, no sync.
        # By `ctid` it need not be sought again, among as many versions as an old snapshot keeps. A
        # version that is newer than this statement is not seen then, which another try mends.
        # The grant is on disk before it is told, even where synchronous_commit is off.
        return f"""UPDATE {self.lock_table} AS l SET fence = {NEXT_FENCE}{queue},
                    token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
                FROM (
                    SELECT k.ctid, open.epoch FROM {self.open}, {self.lock_table} AS k
                    WHERE lock_name = {name} AND {free}
                    FOR UPDATE OF k SKIP LOCKED
                ) AS mine WHERE l.ctid = mine.ctid
                RETURNING fence, {REMAINING}, {DURABLE}"""

    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        asked = {"name": name, "token": token, "owner": owner, "ttl": ttl}
        command = commands.Grant(name, token, owner, ttl)
        return Query(self._grant, asked, command, 0.0, read=read_grant)

    @cached_property
    def _grant(self) -> str:
        taken = self._taken(self.is_available(self.earlier), f", waiters = {self.others()}")
        # One statement has one snapshot: where it shows no row, it shows the floor of the row that
        # was deleted.
        first = FIRST_FENCE.format(floor=self.floor)
        return f"""WITH taken AS (
                {taken}
            ), created AS (
                INSERT INTO {self.lock_table}
                    (lock_name, fence, token, owner, acquired_at, expires_at)
                SELECT %(name)s, {first}, %(token)s, %(owner)s, clock_timestamp(),
                    clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
                FROM {self.open}
                WHERE NOT EXISTS (TABLE taken)
                    AND NOT EXISTS (SELECT FROM {self.lock_table} WHERE lock_name = %(name)s)
                ON CONFLICT (lock_name) DO NOTHING RETURNING fence, {REMAINING}, {DURABLE}
            )
            TABLE taken UNION ALL TABLE created"""

    def take(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        return Query(
            self._take,
            {"name": name, "token": token, "owner": owner, "ttl": ttl},
            commands.Take(name, token, owner, ttl),
            TURN,
            read=read_grant,
        )

    @cached_property
    def _take(self) -> str:
        # It waits for the row, which others who join have for a moment. Who takes over leaves those
        # before it in the queue who are there, and can be called.
        return f"""WITH mine AS MATERIALIZED (
                SELECT lock_name, coalesce({POSITION}, {LENGTH} + 1) AS position, open.epoch
                FROM {self.open}, {self.lock_table} AS k WHERE lock_name = %(name)s AND {PATIENT}
                    AND {self.is_available(self.ahead)} FOR UPDATE OF k
            )
            UPDATE {self.lock_table} AS l SET fence = {NEXT_FENCE},
                waiters = {self.others("number > mine.position OR number < mine.position AND")},
                token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
            FROM mine WHERE l.lock_name = mine.lock_name
            RETURNING fence, {REMAINING}, {DURABLE}"""

    def renew(self, asked: Sequence[Renewal]) -> Query[dict[str, int | None]]:
        # `mine.expires_at`, because l's own may be compared before `mine` has the row locked.
        # Where an expiry is brought forward the first who waits is told, to look again in time.
        # That of readers never is: another may have a longer TTL.
        # The arrays are selected so that the planner does not see how long they are: for many it
        # would read the whole table rather than go by its key.
        names, tokens, ttls = zip(*asked, strict=True)
        return Query(
            f"""WITH present AS MATERIALIZED ({self.epoch(known())}
            ), mine AS MATERIALIZED (
                SELECT k.lock_name, k.expires_at, asked.token, asked.ttl FROM unnest(
                    (SELECT %(names)s::text[]), (SELECT %(tokens)s::text[]),
                    (SELECT %(ttls)s::float8[])
                ) AS asked (lock_name, token, ttl)
                JOIN {self.lock_table} AS k
                    ON k.lock_name = asked.lock_name AND k.token = asked.token
                JOIN present ON k.fence > present.epoch
                FOR NO KEY UPDATE OF k SKIP LOCKED
            )
            UPDATE {self.lock_table} AS l
            SET expires_at = greatest(
                clock_timestamp() + pg_catalog.make_interval(secs => mine.ttl),
                CASE WHEN {shared("l.token")} THEN mine.expires_at END)
            FROM mine WHERE l.lock_name = mine.lock_name AND l.token = mine.token
                AND mine.expires_at > clock_timestamp()
            RETURNING l.token, l.fence, {DURABLE},
                CASE WHEN l.expires_at < mine.expires_at THEN {call()} END""",
            {
                "names": list(names),
                "tokens": list(tokens),
                "ttls": list(ttls),
                "ttl": max(ttls),
            },
            commands.Renew(tuple(asked)),
            0.0,
            read=read_renewed,
        )

    def attach(
        self, name: str, token: str, new_token: str, owner: str, ttl: float
    ) -> Query[int | None]:
        # As a renewal. But a guard keeps it away: FOR UPDATE.
        return Query(
            f"""WITH present AS MATERIALIZED ({self.epoch(known())}
            ), mine AS MATERIALIZED (
                SELECT k.lock_name, k.expires_at FROM {self.lock_table} AS k
                JOIN present ON k.fence > present.epoch
                WHERE k.lock_name = %(name)s AND k.token = %(token)s
                FOR UPDATE OF k SKIP LOCKED
            )
            UPDATE {self.lock_table} AS l SET token = %(new_token)s, owner = %(owner)s,
                expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
            FROM mine WHERE l.lock_name = mine.lock_name AND l.token = %(token)s
                AND mine.expires_at > clock_timestamp()
            RETURNING l.fence, {DURABLE},
                CASE WHEN l.expires_at < mine.expires_at THEN {call()} END""",
            {"name": name, "token": token, "new_token": new_token, "owner": owner, "ttl": ttl},
            commands.Attach(name, token, new_token, owner, ttl),
            0.0,
            read=read_attached,
        )

    def release(self, name: str, token: str) -> Query[int]:
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

    def pass_on(self, name: str, token: str, passes: bool = True) -> Query[int]:
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
        first, passed = Entry.of("first.entry"), Entry.of("next.entry")
        rest = "coalesce(next.number + 1, first.number)"
        return f"""WITH newest AS MATERIALIZED (
                SELECT lock_name, waiters FROM {self.lock_table}
                WHERE lock_name = %(name)s AND token = %(token)s AND {PATIENT}
                FOR NO KEY UPDATE
            ), first AS MATERIALIZED (
                SELECT entry, number FROM newest, {QUEUE} WHERE {THERE} LIMIT 1
            ), next AS MATERIALIZED (
                SELECT entry, number, epoch
                FROM first, LATERAL ({self.epoch(OPEN, known(first.term))}) AS open
                WHERE %(passes)s AND pg_catalog.length(entry) > {TICKET}
                    AND entry NOT LIKE '{UNCALLED}%%'
            )
            UPDATE {self.lock_table} AS l SET
                fence = CASE WHEN next.entry IS NULL THEN l.fence
                    ELSE greatest(l.fence, next.epoch) + 1 END,
                token = {passed.token},
                owner = coalesce({passed.owner}, l.owner),
                acquired_at = CASE WHEN next.entry IS NULL THEN l.acquired_at
                    ELSE clock_timestamp() END,
                expires_at = clock_timestamp() + pg_catalog.make_interval(
                    secs => coalesce({passed.term}, 0)),
                waiters = CASE WHEN pg_catalog.cardinality(l.waiters) >= {rest}
                    THEN l.waiters[{rest}:] END
            FROM newest LEFT JOIN first ON true LEFT JOIN next ON true
            WHERE l.lock_name = newest.lock_name
            RETURNING CASE
                WHEN next.entry IS NULL THEN {call("l.waiters")}
                ELSE pg_notify({channel("next.entry")}, pg_catalog.concat_ws(' ',
                    pg_catalog.left(next.entry, {TICKET}), l.fence,
                    extract(epoch FROM l.acquired_at),
                    extract(epoch FROM l.expires_at - l.acquired_at))) END,
                CASE WHEN next.entry IS NULL THEN {LAZY} ELSE {DURABLE} END"""
