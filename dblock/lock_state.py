"""States of locks and jobs, and the text that describes them to people.

Names and labels come from other processes: nothing in them may steer a terminal or forge a line of
a log. So text for people goes through :func:`printable`. Data (attributes, JSON, telemetry) stays
exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple


def printable(text: str) -> str:
    """Return ``text`` on one line, with the same characters escaped as in repr(): line breaks,
    control characters, invisible characters, and characters that reverse the order of others."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with the noun that goes with it: 1 slot, 2 slots, 0 entries."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def moment(at: datetime | None) -> str:
    """Return a moment as text for people; "" for None."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else ""


class WaiterState(NamedTuple):
    """A waiter for a name. ``waited`` is in seconds, by the database's clock.

    If several threads or tasks of a process wait for one name and hold nothing, dblock shows one.
    """

    owner: str
    strategy: str
    since: datetime
    waited: float

    def describe(self) -> str:
        """Describe the waiter, its lock and the time of its wait, in one line for people."""
        return printable(f"{self.owner} for {self.waited:.1f} s ({self.strategy})")


class RowLockState(NamedTuple):
    """The transaction that has locked a name's row.

    ``holder`` says whose transaction it is, for people. ``session`` is the session's number,
    ``since`` is the start of the transaction, and ``statement`` is its last statement, on MySQL
    without the values in it. They are None if the database does not show them to this role.
    ``replicating`` is True if the server has committed the transaction, and waits for a synchronous
    standby before it says so.
    """

    holder: str
    session: int | None = None
    since: datetime | None = None
    statement: str | None = None
    replicating: bool = False

    def describe(self) -> str:
        """Name its owner and its start, in one line for people."""
        since = f" since {moment(self.since)}" if self.since else ""
        why = ", whose commit waits for a synchronous standby" if self.replicating else ""
        return printable(f"{self.holder}{since}{why}")


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader at one moment, by the database's clock.

    ``owner`` is the label of the leader's process, ``fence`` the number of its term, ``since`` the
    beginning of the term. ``remaining`` is in seconds: then the term is over, unless the leader has
    renewed it. ``value`` is the value that it has proclaimed in this term, None before that.
    """

    owner: str | None
    fence: int
    value: Any
    since: datetime
    remaining: float


@dataclass(frozen=True, slots=True)
class RunState:
    """The record of one run of a job.

    ``slot`` is its slot (``once_per``, ``once_for``), or "" without one. ``fence`` is the fence of
    its lease.
    ``ended_at`` and ``exit_status`` are None while the job runs. They stay None if its process
    died. ``running`` is True if the run has no end and its lease is still held.
    """

    name: str
    slot: str
    fence: int
    owner: str | None
    started_at: datetime
    ended_at: datetime | None
    exit_status: int | None
    running: bool

    @property
    def seconds(self) -> float | None:
        """How many seconds the run took, by the database's clock; None without an end."""
        return None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()

    @property
    def outcome(self) -> str:
        """``"succeeded"``, ``"failed"``, ``"running"``, or ``"unknown"``.

        Unknown means that it has no end and its lease is over: its process died.
        """
        if self.ended_at is None:
            return "running" if self.running else "unknown"
        return "succeeded" if self.exit_status == 0 else "failed"


class SlotsState(NamedTuple):
    """The slots of a semaphore: how many there are, and how many are held.

    ``held`` counts slots above a limit that was lowered too: so it may be more than ``limit``.
    """

    limit: int
    held: int

    @property
    def full(self) -> bool:
        """Whether no slot is left."""
        return self.held >= self.limit

    def describe(self) -> str:
        """Say how many are held, in one line for people."""
        return f"{self.held} of {self.limit} held"


@dataclass(frozen=True, slots=True)
class LockState:
    """A name's row in the lock table at one moment.

    ``remaining`` is in seconds, by the database's clock. It is 0 or less if the lease has expired,
    and None if there is no lease: then the owner and the times belong to the last lease.

    Only :meth:`Locks.show` and :meth:`Locks.list` fill in the rest. ``waiters`` are the waiters
    that have waited for a moment, in the order of arrival. ``run`` is the job's run under the
    lease, if it is a job's. ``row_lock`` is the transaction that has locked the row, if the name
    has no lease and the database shows the transaction.

    ``readers`` is the number of registered readers of a shared lease, or None. A reader that died
    counts until the readers' hold is over. ``owner`` and ``acquired_at`` are the first reader's
    then.

    Only :meth:`Locks.show` fills in ``slots``: the slots of the semaphore with this name, or None.

    It has no token: a token proves ownership, so dblock gives it only to the holder.
    """

    name: str
    fence: int
    owner: str | None = None
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    remaining: float | None = None
    waiters: tuple[WaiterState, ...] = ()
    run: RunState | None = None
    row_lock: RowLockState | None = None
    readers: int | None = None
    slots: SlotsState | None = None

    @property
    def status(self) -> str:
        """The state of the name.

        ``"held"``: a process holds a lease. ``"running"``: a job runs under the lease. ``"done"``:
        the job has ended and still keeps the name. ``"locked"``: a transaction holds the row lock.
        ``"full"``: all slots of a semaphore are held. While a process waits for a slot, it holds a
        lease on the name itself, so the state is ``"held"``. ``"expired"``: the holder did not
        release the lease. ``"free"``: no process holds the name.
        """
        done = self.run is not None and self.run.ended_at is not None
        if self.held:
            return "held" if self.run is None else ("done" if done else "running")
        if self.row_lock is not None:
            return "locked"
        if self.slots is not None and self.slots.full:
            return "full"
        return "free" if self.remaining is None or done else "expired"

    @property
    def held(self) -> bool:
        """Whether a process held an unexpired lease on the name."""
        return self.remaining is not None and self.remaining > 0

    def describe(self) -> str:
        """Name the holder and the expiry, in one line for people."""
        if not self.held or self.remaining is None:
            if self.row_lock is not None:
                return f"locked by {self.row_lock.describe()}"
            if self.slots is not None and self.slots.full:
                return f"full, {self.slots.describe()}"
            return "free"
        since = f" since {moment(self.acquired_at)}" if self.acquired_at else ""
        holder = printable(self.owner or "an unnamed holder")
        if self.status == "done":
            until = f" until {moment(self.expires_at)}" if self.expires_at else ""
            return f"done, kept{until} by {holder}{since}"
        how = (
            "held by"
            if self.readers is None
            else f"shared by {counted(self.readers, 'reader')}, first by"
        )
        return f"{how} {holder}{since}, expires in {self.remaining:.1f} s"
