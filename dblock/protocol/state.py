"""The values that the protocol reads from the tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from ..lock_state import Leader, LockState
from .schema_version import Schema
from .tokens import is_shared


class LeaderRow(NamedTuple):
    """The leader that holds an election's name, if any, without its value; and the name's value,
    whichever hold has written it: ``written_by`` is that hold's fence. It has the token of the
    name's row, so it is never shown to users."""

    leader: Leader | None
    token: str | None
    value: Any
    written_by: int | None

    def told(self) -> Leader | None:
        """Return the leader with the value that its hold has written."""
        leader = self.leader
        if leader is None or self.written_by != leader.fence:
            return leader
        return replace(leader, value=self.value)


@dataclass(frozen=True, slots=True)
class LockRow:
    """A name's row as the protocol needs it. It has the token, so it is never shown to users.

    ``remaining`` is the seconds until ``expires_at``, whether the name is held or not.
    """

    name: str
    fence: int
    token: str | None = field(repr=False)
    owner: str | None
    acquired_at: datetime | None
    expires_at: datetime | None
    remaining: float | None
    #: The token of a shared hold, followed by the tokens of its readers. If the row has another
    #: token, the list is void, and says only that readers use the name at times.
    readers: str | None = field(default=None, repr=False)

    @property
    def members(self) -> tuple[str, ...]:
        """The holders' tokens, also after the expiry: more than one if readers share the name.
        Until there is a list of readers, only the first reader holds it."""
        if self.token is None:
            return ()
        if is_shared(self.token) and self.readers is not None:
            token, *members = self.readers.split(" ")
            if token == self.token:
                return tuple(members)
        return (self.token,)

    @property
    def shared(self) -> bool:
        """Whether readers hold the name, or its row is marked because readers use it at times."""
        return self.readers is not None or is_shared(self.token)

    @property
    def held(self) -> bool:
        """Whether the name had an unexpired lease when it was read."""
        return self.token is not None and self.remaining is not None and self.remaining > 0

    @property
    def lasted(self) -> float | None:
        """Seconds since the grant, by the database's clock."""
        if self.acquired_at is None or self.expires_at is None or self.remaining is None:
            return None
        return (self.expires_at - self.acquired_at).total_seconds() - self.remaining

    def told(self) -> LockState:
        """Return the state for users, without the token."""
        return LockState(
            self.name,
            self.fence,
            self.owner,
            self.acquired_at,
            self.expires_at,
            None if self.token is None else self.remaining,
            readers=len(self.members) if is_shared(self.token) else None,
        )


class QueuePosition(NamedTuple):
    """A ticket's position in a name's queue.

    ``ahead`` is the number of waiters before it; None if the ticket is not in the queue. ``free``
    says that the ticket may take the name now. ``clock`` is the database's clock at that moment, in
    seconds, if the statement reads it.
    """

    ahead: int | None
    free: bool
    clock: float | None = None


class Queued(NamedTuple):
    """A name as a waiter sees it: its row, and the ticket's position."""

    row: LockRow
    position: QueuePosition


class RowOutcome(NamedTuple):
    """The outcome of a try to lock a row.

    ``stale`` says that the statement ran under a snapshot that cannot show newer rows. ``closed``
    says that nothing may be granted yet, during the pause after a crash or a failover. ``here``
    says that the transaction uses the expected tables; if it is false, the caller has to check.
    """

    locked: bool
    stale: bool = False
    closed: bool = False
    here: bool = False


class Passed(NamedTuple):
    """The notification that a waiter gets when a release has passed the name on to it.

    ``granted`` is the time of the grant by the database's clock, in seconds; ``ttl`` is the length
    of the first term in seconds.
    """

    fence: int
    granted: float
    ttl: float


class Place(NamedTuple):
    """The location of a set of tables, and what distinguishes it from every other set.

    ``schema`` is the real schema, with which statements qualify the tables' names. The
    ``container`` is the unit that may be copied as a whole: a PostgreSQL database, or a file. The
    ``writer`` is the transaction that wrote the ``identity`` there; in a restored copy another
    transaction wrote it.
    """

    identity: str
    schema: str
    container: str | None = None
    writer: str | None = None
    host: str | None = None
    port: str | None = None
    #: Whether the server is a node of a cluster in which a row lock on one node does not block the
    #: other nodes.
    clustered: bool = False

    @property
    def mark(self) -> tuple[str | None, ...]:
        """The values that no other set of tables has."""
        return self.identity, self.container, self.writer

    def __str__(self) -> str:
        server = f"{self.host or 'this host'}, port {self.port}" if self.port else ""
        parts = (self.container, self.schema != "main" and f"schema {self.schema}", server)
        return ", ".join(str(part) for part in parts if part)


class Found(NamedTuple):
    """The tables' version, and their location, if this version of the tables records it."""

    schema: Schema
    place: Place | None


class Record(NamedTuple):
    """The record of a call that is made once. ``result`` is JSON; None until the call ends."""

    token: str
    fingerprint: str | None
    result: str | None


class Pruned(NamedTuple):
    """How many records were deleted."""

    keys: int
    runs: int


class NamePage(NamedTuple):
    """A page of names in order: the ``last`` name on it, and the largest fence of its unused names;
    None if all names on it are in use."""

    last: str
    fence: int | None


class Renewal(NamedTuple):
    """One hold, and the TTL in seconds from now that it is to have."""

    name: str
    token: str
    ttl: float


class Witness(NamedTuple):
    """The record that proves that the lock table has every lease of the present ``epoch``.

    All fences of the epoch are above its number; ``cause`` is what ended the epoch before,
    ``"crash"`` or ``"failover"``. Nothing may be granted for ``pause`` more seconds by the
    database's clock; 0 or below when grants are allowed. No TTL above ``longest_ttl`` seconds is
    granted; 0 says that the longest TTL must be recorded again.
    """

    epoch: int
    cause: str | None
    pause: float
    longest_ttl: float


class Member(NamedTuple):
    """A database's record as a member of a quorum, and what it depends on.

    ``value`` is the record's text, None if there is none: ``longest`` is the longest TTL that the
    member votes for, in milliseconds, and it votes in ``opens`` seconds, or now if that is not
    positive. ``instance`` tells one start of the server from another, where the database shows it.
    No name has a larger fence there than ``fence``.
    """

    value: str | None
    longest: int
    opens: float
    instance: str
    fence: int


class Granted(NamedTuple):
    """A lease as the granting statement reported it; ``remaining`` is in seconds, by the database's
    clock.

    ``name`` is the name that was granted, if the statement could choose among several.
    """

    fence: int
    remaining: float
    name: str | None = None


class Slots(NamedTuple):
    """A semaphore's limit and its rows.

    ``limit`` is None if no limit is stored yet, 0 if the value is an election's, and -1 if it is a
    rate limit's. ``rows`` has the existing rows of the turnstile and of the slots by their names,
    each with whether a caller without a ticket may take it.
    """

    limit: int | None
    rows: dict[str, Queued]

    @property
    def semaphore_limit(self) -> int | None:
        """The limit, if the name is a semaphore's."""
        return self.limit if self.limit is not None and self.limit > 0 else None
