"""The requests of operators: list and show names, release one by force, prune records."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..arguments import (
    LIMIT_MAX,
    Seconds,
    check_age,
    check_count,
    check_fence,
    check_idle,
    check_name,
    check_pause,
)
from ..lock_state import LockState, RunState
from ..protocol import epoch, job_runs, overview, release, retiring
from ..protocol.state import Pruned

if TYPE_CHECKING:
    from ..holding.database import Database


class Operators:
    """The methods of :class:`.Locks` that acquire nothing."""

    _database: Database

    def list(self) -> list[LockState]:
        """Return the names that have a lease, waiters or a row lock, sorted by name.

        The list includes expired leases that no process has taken over yet, names with a waiter
        that has waited for a moment, and names with a row lock, if the database shows it. It leaves
        out jobs that have ended and no longer keep their names.
        """
        return self._database.run(overview.look_at_all(self._database.exchange()))

    def show(self, name: str) -> LockState:
        """Return the state of a name: its lease, the waiters that have waited for a moment, the job
        that runs under it, the slots if it is a semaphore's, and the transaction that has locked
        its row.

        PostgreSQL shows which transaction holds a row lock. SQLite shows only that a transaction
        is writing to the file. MySQL and MariaDB show a row lock after another session has waited
        for it for a few seconds.
        """
        check_name(name)
        return self._database.run(overview.show(self._database.exchange(name), LIMIT_MAX))

    def release(self, name: str, *, force: bool, fence: int | None = None) -> bool:
        """Free a name without asking its holder. Return False if it was free.

        You have to confirm with ``force=True``; anything else raises ValueError. The holder learns
        of the loss with its next renewal, or when it releases or guards. dblock never repeats the
        holder's fence, so a system that checks fences can refuse the holder's late writes.

        With ``fence`` free only the hold with that fence, which you have seen in :meth:`show`. If
        another hold has the name by now, it stays, and you get StaleFence.
        """
        check_name(name)
        seen = None if fence is None else check_fence(fence)
        if force is not True:
            raise ValueError(
                "Locks.release takes a lock away from its holder: confirm with force=True. "
                "Your own lease is released with lease.release()"
            )

        exchange = self._database.exchange(name, timeout=self._database.timeouts.query)
        return self._database.run(release.force(exchange, seen))

    def last_run(self, name: str) -> RunState | None:
        """Return the run of a job that began last, or None if there is no record.

        :meth:`cron` and ``dblock run`` record their runs.
        """
        check_name(name)
        return self._database.run(job_runs.last(self._database.exchange(name)))

    def runs(self, name: str, limit: int = 100) -> builtins.list[RunState]:
        """Return the recorded runs of a job, at most ``limit``, the newest first.

        Each slot of a job has one record, of its last run. All runs without a slot share one
        record.
        """
        check_name(name)
        count = check_count("limit", limit)
        return self._database.run(job_runs.recorded(self._database.exchange(name), count))

    def last_runs(self, limit: int = 1000) -> builtins.list[RunState]:
        """Return the last run of each job, the latest first: at most ``limit`` jobs."""
        count = check_count("limit", limit)
        return self._database.run(job_runs.last_of_each(self._database.exchange(), count))

    def reopen(self, name: str, slot: str) -> bool:
        """Let a job run again in a slot in which it has succeeded.

        This deletes the record of that run. Return False if the slot is open: no run has succeeded
        in it, or one is running. This does not shorten the time for which ``at_least`` keeps the
        name.
        """
        check_name(name)
        check_name(slot, "a slot")
        exchange = self._database.exchange(name, timeout=self._database.timeouts.query)
        return self._database.run(job_runs.reopen(exchange, slot))

    def prune(self, older_than: Seconds) -> Pruned:
        """Delete idempotency keys and records of runs that are older than ``older_than`` seconds.

        Return how many of each it deleted. Afterwards a deleted key or slot counts as new. Keys of
        :meth:`once` are deleted when their ``keep`` is over. The record of a name's last run stays
        for ever. :meth:`prune_names` deletes the name's row.
        """
        age = check_age(older_than)
        return self._database.run(job_runs.prune(self._database.exchange(), age))

    def prune_names(self, idle: Seconds) -> int:
        """Delete the rows of names that no lease has used for ``idle`` seconds; return how many.

        ``idle`` is at least a minute. Names with a holder, a waiter or a row lock stay. If a
        deleted name is used again, its fence is larger than all its earlier ones. Names that only
        row locks have used are deleted at any age, because their rows have no fence to keep.
        """
        age = check_idle(idle)
        return self._database.run(retiring.retire(self._database.exchange(), age))

    def pause(self, longest_ttl: Seconds | None = None) -> float:
        """Grant nothing until all earlier leases have expired; return in how many seconds that is.

        Use it on PostgreSQL if holders may have leases that these tables do not contain: after you
        have moved the tables here from another server, or restored them. Every earlier lease is
        lost, and its holder gets LockLost. The pause lasts for the longest TTL that dblock knows
        of, or for ``longest_ttl`` seconds. A shorter ``longest_ttl`` also shortens a pause that is
        going on. Then you assert that no holder works for longer, which dblock cannot check.
        MySQL, MariaDB and SQLite have no pause: Unsupported.
        """
        longest = None if longest_ttl is None else check_pause(longest_ttl)
        return self._database.run(epoch.pause(self._database.exchange(), longest))
