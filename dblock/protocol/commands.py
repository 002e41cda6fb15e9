"""What each statement asks of the database, in values that are the same for all databases.

A statement's SQL and its parameters are one database's own way to say it. Whoever takes the part of
a database, or looks at what is sent, goes by these.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from .state import Renewal

# --- where the tables are ------------------------------------------------------------------------


class LookAround(NamedTuple):
    """Look where the tables are, and in which version."""


class SeeHidden(NamedTuple):
    """See whether a temporary table hides one of dblock's."""


# --- the lease -----------------------------------------------------------------------------------


class Grant(NamedTuple):
    """Take the name if it is free; if it is ``known``, only one with a row and without a queue."""

    name: str
    token: str
    owner: str
    ttl: float
    known: bool = False


class GrantSlot(NamedTuple):
    """Take any free slot of a semaphore, if its limit is this and nobody is at its turnstile but
    who has that with a token. The slots are tried from the one after ``first`` on, or that one
    alone, which is ``known``: this process has had it at once, so it is likely to be free."""

    name: str
    limit: int
    token: str
    owner: str
    ttl: float
    turnstile: str
    first: int
    known: bool = False


class LookAtSlots(NamedTuple):
    """Read the limit of a semaphore, and the rows of its turnstile and of so many slots."""

    name: str
    limit: int


class SetLimit(NamedTuple):
    """Write the limit of a semaphore; if not ``anew``, only where it has none."""

    name: str
    limit: int
    anew: bool


class Take(NamedTuple):
    """Take the name if it is the turn of who stands in the queue with a token."""

    name: str
    token: str
    owner: str
    ttl: float


class Join(NamedTuple):
    """Let the ticket stand in the queue; where nobody is called, or take the name if that is its
    turn.

    One that ``yields`` does not stand there while another waits in the server.
    """

    name: str
    token: str
    owner: str
    ttl: float
    ticket: str
    yields: bool = False


class Leave(NamedTuple):
    """Take a waiter out of the queue; call the next one if the name is free."""

    name: str
    token: str
    ticket: str


class Renew(NamedTuple):
    """Move the expiries of unexpired holds."""

    asked: tuple[Renewal, ...]


class Attach(NamedTuple):
    """Go on with an unexpired hold under another token."""

    name: str
    token: str
    new_token: str
    owner: str
    ttl: float


class Release(NamedTuple):
    """Free the name if the token holds it; where names are passed on, only if nobody waits."""

    name: str
    token: str


class PassOn(NamedTuple):
    """Make the name, if the token holds it, the first waiter's; or free it and call who waits."""

    name: str
    token: str
    #: Whether it may be anybody's already.
    passes: bool


class JoinReaders(NamedTuple):
    """Share the unexpired hold of a group of readers, and let it last for a TTL from now at least.

    Only if nobody is in the queue before who asks, unless it goes ``past`` them.
    """

    name: str
    group: str
    token: str
    ttl: float
    ticket: str
    past: bool


class LeaveReaders(NamedTuple):
    """Share a hold no longer; the last reader frees the name, and calls who waits."""

    name: str
    group: str
    token: str


class CallReaders(NamedTuple):
    """Call the readers that wait before the first writer for a name that readers share."""

    name: str
    group: str


class WaitInServer(NamedTuple):
    """Wait for the name's user lock."""

    name: str


class ReleaseAndUnlock(NamedTuple):
    """Free the name as :class:`Release` does, and its user lock."""

    name: str
    token: str


class UnlockAll(NamedTuple):
    """Let all user locks of the session go."""


class Look(NamedTuple):
    """Read the rows of names."""

    names: tuple[str, ...]


class LookQueued(NamedTuple):
    """Read a name's row, and where the ticket stands."""

    name: str
    token: str
    ticket: str


class ListHeld(NamedTuple):
    """Read the rows of all names with a token, or waited for."""


class ListRowLocks(NamedTuple):
    """Read who has locked the row of a name, or of any."""

    name: str | None


# --- the witness ---------------------------------------------------------------------------------


class ReadWitness(NamedTuple):
    """Read the witness."""


class WriteWitness(NamedTuple):
    """Write the witness anew if it is missing."""


class Distrust(NamedTuple):
    """Let nobody believe the witness; no lease is out for longer than ``longest``."""

    longest: float | None


class AnnounceTtl(NamedTuple):
    """Let it be known, for after a failover, that TTLs as long as this may be granted."""

    ttl: float


class RecordTtl(NamedTuple):
    """Let it be known, for after a crash, that TTLs as long as this are granted."""

    ttl: float


# --- the row lock, the guard, and their transactions ---------------------------------------------


class Create(NamedTuple):
    """Insert the free row of a name, unless it is there."""

    name: str


class Begin(NamedTuple):
    """Begin a row lock's own transaction."""


class Commit(NamedTuple):
    """End it, and with it what it has locked."""


class Rollback(NamedTuple):
    """Undo it."""


class Probe(NamedTuple):
    """See whether it is still there."""


class Savepoint(NamedTuple):
    """Make one in the user's transaction."""


class UndoSavepoint(NamedTuple):
    """Undo what was done since; rows that were locked since are let go."""


class EndSavepoint(NamedTuple):
    """Be done with it."""


class LockRow(NamedTuple):
    """Lock a free name's row until the transaction ends, which may be ``borrowed``."""

    name: str
    borrowed: bool


class Guard(NamedTuple):
    """Hold off, in the user's transaction, all who would take the name."""

    name: str
    token: str
    fence: int


class Apply(NamedTuple):
    """Record a key, in the user's transaction, unless it is recorded."""

    key: str


class Unapply(NamedTuple):
    """Take back a key that this transaction has recorded."""

    key: str


class Gate(NamedTuple):
    """Raise the largest fence that a table of the user's has seen, in the user's transaction."""

    name: str
    fence: int


class ClaimOnce(NamedTuple):
    """Record a call, in the user's transaction, unless it is recorded; read the record."""

    key: str
    token: str
    fingerprint: str | None
    keep: float


class FinishOnce(NamedTuple):
    """Record the result of a call that this transaction has recorded."""

    key: str
    token: str


class ForgetOnce(NamedTuple):
    """Take back the record of a call that this transaction has recorded."""

    key: str
    token: str


# --- those who are seen waiting ------------------------------------------------------------------


class Register(NamedTuple):
    """Write that a waiter is there, for the first time or again."""

    id: str
    name: str
    strategy: str
    owner: str
    waited: float
    lasts: float
    holds: Mapping[str, int | None]


class Unregister(NamedTuple):
    """Remove a waiter."""

    id: str


class Sweep(NamedTuple):
    """Remove waiters whose time is over."""


class ListWaiters(NamedTuple):
    """Read who waits for a name, or for any."""

    name: str | None


class ListBlocked(NamedTuple):
    """Read all waiters that hold something, and which lease is on what they wait for."""


# --- jobs ----------------------------------------------------------------------------------------


class ReadClock(NamedTuple):
    """Read the database's clock."""


class BeginRun(NamedTuple):
    """Record that a run begins, unless one has succeeded in its slot."""

    name: str
    slot: str
    fence: int
    owner: str


class EndRun(NamedTuple):
    """Record how a run ended."""

    name: str
    slot: str
    fence: int
    status: int


class ForgetRun(NamedTuple):
    """Delete the record of a run."""

    name: str
    slot: str
    fence: int


class ListRuns(NamedTuple):
    """Read the runs of a name that began last, so many."""

    name: str
    limit: int
    slot: str | None = None


class ListLastRuns(NamedTuple):
    """Read the last runs of the names whose runs began last, so many."""

    limit: int


class ListHeldRuns(NamedTuple):
    """Read the runs under the leases that there are now."""


class PruneApplied(NamedTuple):
    """Delete some of the keys that are older, in seconds."""

    age: float


class PruneOnce(NamedTuple):
    """Delete some of the records of calls that are kept no longer."""


class PruneRuns(NamedTuple):
    """Delete some of the runs that are older, in seconds, not the last one of a name."""

    age: float


# --- names that are not used any more ------------------------------------------------------------


class LookForUnused(NamedTuple):
    """Look which of some names that follow another were not used for so long, in seconds."""

    after: str
    idle: float


class RaiseFloor(NamedTuple):
    """Let the fences of all names that are new from now on be above a fence."""

    fence: int


class Retire(NamedTuple):
    """Delete the rows of names that follow one, up to another, where they were not used for so
    long and have a fence up to the floor."""

    after: str
    last: str
    fence: int
    idle: float


class PruneValues(NamedTuple):
    """Delete some of the values that are older, in seconds, and whose names have no row."""

    age: float


# --- what a leader tells -------------------------------------------------------------------------


class WriteValue(NamedTuple):
    """Write the value of a name, if the token holds it, under the hold's fence."""

    name: str
    token: str
    fence: int
    value: str


class ReadLeader(NamedTuple):
    """Read who holds a name, and the value that this hold has written."""

    name: str


class CallObservers(NamedTuple):
    """Call those who observe a name."""

    name: str


# --- sessions ------------------------------------------------------------------------------------


class EndSession(NamedTuple):
    """End a session, known as its server knows it, whatever it is at."""

    session: str


Command = (
    LookAround
    | SeeHidden
    | Grant
    | GrantSlot
    | LookAtSlots
    | SetLimit
    | Take
    | Join
    | Leave
    | JoinReaders
    | LeaveReaders
    | CallReaders
    | Renew
    | Attach
    | Release
    | PassOn
    | WaitInServer
    | ReleaseAndUnlock
    | UnlockAll
    | Look
    | LookQueued
    | ListHeld
    | ReadWitness
    | WriteWitness
    | Distrust
    | AnnounceTtl
    | RecordTtl
    | Create
    | Begin
    | Commit
    | Rollback
    | Probe
    | Savepoint
    | UndoSavepoint
    | EndSavepoint
    | LockRow
    | Guard
    | Apply
    | Unapply
    | Gate
    | ClaimOnce
    | FinishOnce
    | ForgetOnce
    | Register
    | Unregister
    | Sweep
    | ListWaiters
    | ListBlocked
    | ReadClock
    | BeginRun
    | EndRun
    | ForgetRun
    | ListRuns
    | ListLastRuns
    | ListHeldRuns
    | ListRowLocks
    | PruneApplied
    | PruneOnce
    | PruneRuns
    | LookForUnused
    | RaiseFloor
    | Retire
    | PruneValues
    | WriteValue
    | ReadLeader
    | CallObservers
    | EndSession
)

#: What ends a hold or a place in the queue, or keeps a hold. It waits for nobody who only asks.
FIRST = frozenset({Release, PassOn, LeaveReaders, Leave, Renew, EndSession})


@cache
def word(name: str) -> str:
    """Return the word for a command, from the name of its class: ``"grant"``, ``"lock_row"``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
