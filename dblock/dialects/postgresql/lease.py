"""The lease on PostgreSQL: granted, renewed, released, and passed on to the first waiter."""

from __future__ import annotations

from functools import cached_property

from ...protocol.commands import Attach, Grant, PassOn, Release, Renew, Take
from ..readers import shared
from ..replies import read_attached, read_grant, read_renewed
from ..statement import statement
from ..tickets import TICKET, UNCALLED
from .fragments import DURABLE, FREE, LAZY, PATIENT, REMAINING, TURN
from .queue import LENGTH, POSITION, QUEUE, THERE, Entry, QueueStatements, call, channel
from .witness import FIRST_FENCE, NEXT_FENCE, OPEN, known


def _arrays(dialect: object, command: Renew) -> dict[str, object]:
    names, tokens, ttls = map(list, zip(*command.asked, strict=True))
    return {"names": names, "tokens": tokens, "ttls": ttls, "ttl": max(ttls)}


class LeaseStatements(QueueStatements):
    """Every statement writes and compares expiries with ``clock_timestamp()``, because ``now()`` is
    the transaction's start. It computes a new expiry only after it has locked the row: in the step
    that waits for the row, the server may read ``clock_timestamp()`` before the wait.
    """

    @statement(Grant, read=read_grant, lock_timeout=0.0)
    def grant(self, command: Grant) -> str:
        return self.grant_known if command.known else self.grant_new

    @cached_property
    def grant_known(self) -> str:
        # The server initialises every node of a plan, whether the node runs or not. The larger plan
        # of `grant` takes it twice as long.
        return self._taken(f"waiters IS NULL AND {FREE}")

    def _taken(
        self, free: str, queue: str = "", name: str = "%(name)s", from_: str | None = None
    ) -> str:
        """Return the statement that takes a ``name`` which has a row, if it is ``free``.

        ``from_`` is :attr:`open`, or the same with more conditions.
        """
        # `mine` reads before it locks, so a refused try writes nothing: no WAL, no sync.
        # By `ctid` the UPDATE need not search for the row again, among all the dead versions that
        # an old snapshot keeps. It misses a version that is newer than its own snapshot; the next
        # try finds that.
        # DURABLE: the grant is on disk before the client learns of it, even where
        # synchronous_commit is off.
        return f"""UPDATE {self.lock_table} AS l SET fence = {NEXT_FENCE}{queue},
                    token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
                FROM (
                    SELECT k.ctid, open.epoch FROM {from_ or self.open}, {self.lock_table} AS k
                    WHERE lock_name = {name} AND {free}
                    FOR UPDATE OF k SKIP LOCKED
                ) AS mine WHERE l.ctid = mine.ctid
                RETURNING fence, {REMAINING}, {DURABLE}"""

    @cached_property
    def grant_new(self) -> str:
        return self.grant_any(self.open)

    def grant_any(self, open_: str) -> str:
        """Return the statement that takes a name, whether it has a row or not; ``open_`` is the
        epoch, as in :attr:`open`."""
        waiters = f", waiters = {self.others()}"
        taken = self._taken(self.is_available(self.earlier), waiters, from_=open_)
        # A statement has one snapshot. If the snapshot has no row for the name, its floor is at
        # least the fence of the row that was deleted.
        first = FIRST_FENCE.format(floor=self.floor)
        return f"""WITH taken AS (
                {taken}
            ), created AS (
                INSERT INTO {self.lock_table}
                    (lock_name, fence, token, owner, acquired_at, expires_at)
                SELECT %(name)s, {first}, %(token)s, %(owner)s, clock_timestamp(),
                    clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
                FROM {open_}
                WHERE NOT EXISTS (TABLE taken)
                    AND NOT EXISTS (SELECT FROM {self.lock_table} WHERE lock_name = %(name)s)
                ON CONFLICT (lock_name) DO NOTHING RETURNING fence, {REMAINING}, {DURABLE}
            )
            TABLE taken UNION ALL TABLE created"""

    @statement(Take, read=read_grant, lock_timeout=TURN)
    def take(self) -> str:
        # It waits for the row, which other waiters lock for a moment while they join. A waiter that
        # takes the name out of turn leaves the waiters before it queued, if they can be notified.
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

    @statement(Renew, read=read_renewed, lock_timeout=0.0, parameters=_arrays)
    def renew(self) -> str:
        # `mine.expires_at`, because the server may compare l's own before `mine` has locked the
        # row. If a renewal brings the expiry forward, it notifies the first waiter, which then sees
        # the new expiry in time. Readers never bring it forward: another may have a longer TTL.
        # The arrays are in subqueries, which hide their lengths from the planner: for a long array
        # it would read the whole table rather than use the key.
        return f"""WITH present AS MATERIALIZED ({self.epoch(known())}
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
                CASE WHEN l.expires_at < mine.expires_at THEN {call()} END"""

    @statement(Attach, read=read_attached, lock_timeout=0.0)
    def attach(self) -> str:
        # The same as a renewal, but FOR UPDATE, which conflicts with a guard's FOR KEY SHARE: no
        # other process attaches a hold while it guards a transaction.
        return f"""WITH present AS MATERIALIZED ({self.epoch(known())}
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
                CASE WHEN l.expires_at < mine.expires_at THEN {call()} END"""

    @statement(Release, lock_timeout=TURN)
    def release(self) -> str:
        # Usually there is no waiter, so this statement is as small as it can be. LAZY: a crash may
        # lose it; then the lease expires by itself, which only delays the next holder. If a waiter
        # joins meanwhile, the server checks the condition again, with the row's new version.
        return f"""UPDATE {self.lock_table} SET token = NULL, expires_at = clock_timestamp()
            WHERE lock_name = %(name)s AND token = %(token)s AND waiters IS NULL AND {PATIENT}
            RETURNING {LAZY}"""

    @statement(PassOn, lock_timeout=TURN)
    def pass_on(self) -> str:
        # `newest` locks the row first, so that the next steps see waiters that joined meanwhile.
        # Passing a name on is a grant: the witness has to allow it, it has the next fence, it is on
        # disk before the waiter is notified, and it lasts for the first term at most.
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
