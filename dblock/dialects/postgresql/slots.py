"""The slots of a semaphore on PostgreSQL: the first that is free and not being taken just now."""

from __future__ import annotations

from functools import cached_property

from ...protocol.commands import GrantSlot
from ..slots import SlotStatements as Slots
from ..slots import read_slot, slot_parameters
from ..statement import statement
from .fragments import DURABLE, FREE, REMAINING
from .lease import LeaseStatements
from .witness import NEXT_FENCE


class SlotStatements(LeaseStatements, Slots):
    """A slot is granted like any name: living waiters in its queue come first."""

    @property
    def anybodys(self) -> str:
        return self.is_available(self.earlier)

    @statement(GrantSlot, reads=read_slot, parameters=slot_parameters, lock_timeout=0.0)
    def grant_slot(self, command: GrantSlot) -> str:
        return self._grant_known_slot if command.known else self._grant_slot

    @cached_property
    def _grant_known_slot(self) -> str:
        # As in `_grant_known`: a statement's cost is mostly the size of its plan, and the plan that
        # searches for a free slot is large.
        free = f"waiters IS NULL AND {FREE} AND {self.admits}"
        return self._taken(free, name="%(slot)s")

    @cached_property
    def _grant_slot(self) -> str:
        # The statement searches for each slot by its key, and the subquery that finds it free locks
        # it. It skips a slot that another session is taking; if another has taken it since the
        # snapshot, it checks the newest version. MATERIALIZED, so that the search runs once,
        # whatever the plan: a second run would find another slot.
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
