"""The slots of a semaphore on PostgreSQL: the first that is free and not being taken just now."""

from __future__ import annotations

from functools import cached_property

from ..slots import SlotStatements as Slots
from .fragments import DURABLE, FREE, REMAINING
from .lease import LeaseStatements
from .witness import NEXT_FENCE


class SlotStatements(LeaseStatements, Slots):
    """A slot is taken as any name is: those in its queue who are there come first."""

    @property
    def anybodys(self) -> str:
        return self.is_available(self.earlier)

    slot_patience = 0.0

    @cached_property
    def _grant_known_slot(self) -> str:
        # As with a name that is known: most of what a statement costs is what it might do, and
        # one that looks for any slot might do a lot.
        free = f"waiters IS NULL AND {FREE} AND {self.admits}"
        return self._taken(free, name="%(slot)s")

    @cached_property
    def _grant_slot(self) -> str:
        # Each slot is looked for by its key, and locked by the look that finds it free: what
        # others are taking is skipped, what they have taken since is judged by its newest version.
        # That is done once, whatever the plan: done again for another row, it would find another.
        slot = "%(name)s::text || '#' || (1 + (%(first)s::int + n) %% %(limit)s::int)::text"
        return f"""WITH admitted AS MATERIALIZED (
                SELECT epoch FROM {self.open} WHERE {self.admits}
            ), mine AS MATERIALIZED (
                SELECT free.ctid, free.epoch
                FROM pg_catalog.generate_series(0, %(limit)s::int - 1) AS n, LATERAL (
                    SELECT k.ctid, admitted.epoch FROM admitted, {self.lock_table} AS k
                    WHERE lock_name = {slot} AND {self.anybodys}
                    FOR UPDATE OF k SKIP LOCKED
                ) AS free LIMIT 1
            )
            UPDATE {self.lock_table} AS l SET fence = {NEXT_FENCE}, waiters = {self.others()},
                    token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
                FROM mine WHERE l.ctid = mine.ctid
                RETURNING fence, {REMAINING}, lock_name, {DURABLE}"""
