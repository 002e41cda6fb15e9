"""What the tables say, to the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from ..lock_state import LockState
from .schema_version import Schema
from .tokens import is_shared


@dataclass(frozen=True, slots=True)
class LockRow:
    """A name's row as the protocol needs it. With its token, so it is shown to nobody.

    ``remaining`` is in seconds to ``expires_at``, whether there is a lease or not.
    """

    name: str
    fence: int
    token: str | None = field(repr=False)
    owner: str | None
    acquired_at: datetime | None
    expires_at: datetime | None
    remaining: float | None
    #: The token of a shared hold, and behind it those of its readers. Of another token it is void,
    #: and tells only that the name is shared now and then.
    readers: str | None = field(default=None, repr=False)

    @property
    def members(self) -> tuple[str, ...]:
        """The tokens of those who hold it, or have until it ran out: more than one if readers
        share it. It is the first reader's alone, until there is a list."""
        if self.token is None:
            return ()
        if is_shared(self.token) and self.readers is not None:
            token, *members = self.readers.split(" ")
            if token == self.token:
                return tuple(members)
        return (self.token,)

    @property
    def shared(self) -> bool:
        """Whether readers hold it, or have left in its row that they want it now and then."""
        return self.readers is not None or is_shared(self.token)

    @property
    def held(self) -> bool:
        """Whether an unexpired lease was on the name."""
        return self.token is not None and self.remaining is not None and self.remaining > 0

    @property
    def lasted(self) -> float | None:
        """For how many seconds it has been held, by the database's clock."""
        if self.acquired_at is None or self.expires_at is None or self.remaining is None:
            return None
        return (self.expires_at - self.acquired_at).total_seconds() - self.remaining

    def told(self) -> LockState:
        """Return what anybody may be told of it."""
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
    """Where a ticket stands in a name's queue: None if not at all, else how many are before it.

    ``free`` says that it may take the name now. ``clock`` is what the database's clock said then,
    in seconds, where it was asked.
    """

    ahead: int | None
    free: bool
    clock: float | None = None


class Queued(NamedTuple):
    """A name as one who waits for it sees it: its row, and where the ticket stands."""

    row: LockRow
    position: QueuePosition


class RowOutcome(NamedTuple):
    """What became of locking a row.

    ``stale`` says that the statement ran under a snapshot that cannot show newer rows, ``closed``
    that nothing may be granted yet, ``here`` that the tables are these, as is to be found out where
    it does not say so.
    """

    locked: bool
    stale: bool = False
    closed: bool = False
    here: bool = False


class Passed(NamedTuple):
    """What the first in a queue is told when a release has made the name its own.

    ``granted`` is when, by the database's clock; ``ttl`` how long its first term is.
    """

    fence: int
    granted: float
    ttl: float


class Place(NamedTuple):
    """Where a set of tables is, and what tells it from every other.

    ``schema`` is the real one, by which statements name the tables. The ``container`` is what may
    be copied as a whole: a database of PostgreSQL, a file. The ``writer`` is the transaction that
    wrote the ``identity`` there; a copy that was restored has another one.
    """

    identity: str
    schema: str
    container: str | None = None
    writer: str | None = None
    host: str | None = None
    port: str | None = None
    #: Whether the server is a node of a cluster whose nodes lock no rows on each other.
    clustered: bool = False

    @property
    def mark(self) -> tuple[str | None, ...]:
        """What no other set of tables has."""
        return self.identity, self.container, self.writer

    def __str__(self) -> str:
        server = f"{self.host or 'this host'}, port {self.port}" if self.port else ""
        parts = (self.container, self.schema != "main" and f"schema {self.schema}", server)
        return ", ".join(str(part) for part in parts if part)


class Found(NamedTuple):
    """What was found of the tables: their version; and where they are, if they tell that yet."""

    schema: Schema
    place: Place | None


class Record(NamedTuple):
    """What is on record of a call that is made once. ``result`` is its JSON, None until it ends."""

    token: str
    fingerprint: str | None
    result: str | None


class Pruned(NamedTuple):
    """How many records were deleted."""

    keys: int
    runs: int


class NamePage(NamedTuple):
    """Some names, in their order: the ``last`` of them, and the largest fence of those that are
    not used any more; None where all are used."""

    last: str
    fence: int | None


class Renewal(NamedTuple):
    """One hold whose expiry is to be moved to ``ttl`` seconds from now."""

    name: str
    token: str
    ttl: float


class Witness(NamedTuple):
    """What vouches that the lock table knows every lease there is, and for which of them.

    All fences of the present ``epoch`` are above it; ``cause`` is what ended the one before,
    ``"crash"`` or ``"failover"``. ``pause`` is for how many seconds nothing may be granted yet,
    by the database's clock; not above 0 when it may. No TTL above ``longest_ttl`` is granted; 0
    says that it has to be recorded anew.
    """

    epoch: int
    cause: str | None
    pause: float
    longest_ttl: float


class Granted(NamedTuple):
    """A lease as the granting statement reported it; ``remaining`` by the database's clock.

    ``name`` is what was granted, where that was any of several.
    """

    fence: int
    remaining: float
    name: str | None = None


class Slots(NamedTuple):
    """A semaphore: its limit, None if it has none yet, and 0 if what is stored is something else;
    and by their names the rows that there are, of its turnstile and of its slots, each with whether
    it is anybody's to take."""

    limit: int | None
    rows: dict[str, Queued]
