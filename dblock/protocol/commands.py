"""Commands: what each statement asks of the database, as values that are equal on all databases.

SQL and parameters differ between databases; the command does not. A simulated database executes the
commands, and code that observes statements recognizes them by their commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from .state import Renewal

# --- location of the tables ----------------------------------------------------------------------


class LookAround(NamedTuple):
    """Read the location and the version of the tables."""


class SeeHidden(NamedTuple):
    """Read whether a temporary table hides one of dblock's tables."""


# --- the lease -----------------------------------------------------------------------------------


class Grant(NamedTuple):
    """Take the name if it is free; with ``known``, only a name with a row and an empty queue."""

    name: str
    token: str
    owner: str
    ttl: float
    known: bool = False


class GrantSlot(NamedTuple):
    """Take any free slot of a semaphore, unless the stored limit differs or another token than
    ``turnstile`` holds the turnstile or waits for it. The slots are tried from slot ``first + 1``
    on. With ``known`` that slot alone is tried: this process got it at its first try before, so it
    is likely to be free."""

    name: str
    limit: int
    token: str
    owner: str
    ttl: float
    turnstile: str
    first: int
    known: bool = False


class LookAtSlots(NamedTuple):
    """Read the limit of a semaphore, and the rows of its turnstile and of ``limit`` slots."""

    name: str
    limit: int


class SetLimit(NamedTuple):
    """Write the limit of a semaphore. Unless ``anew``, keep the limit that is stored already."""

    name: str
    limit: int
    anew: bool


class Take(NamedTuple):
    """Take the name if it is the turn of the waiter with the token."""

    name: str
    token: str
    owner: str
    ttl: float


class Join(NamedTuple):
    """Put the ticket into the queue. On a database without notifications, take the name instead if
    it is the ticket's turn.

    With ``yields`` the ticket does not join while another session waits in the server.
    """

    name: str
    token: str
    owner: str
    ttl: float
    ticket: str
    yields: bool = False


class Leave(NamedTuple):
    """Remove a waiter from the queue; notify the next waiter if the name is free."""

    name: str
    token: str
    ticket: str


class Renew(NamedTuple):
    """Move the expiries of unexpired holds."""

    asked: tuple[Renewal, ...]


class Attach(NamedTuple):
    """Move an unexpired hold to another token."""

    name: str
    token: str
    new_token: str
    owner: str
    ttl: float


class Release(NamedTuple):
    """Free the name if the token holds it; where releases pass names on, only if its queue is
    empty."""

    name: str
    token: str


class PassOn(NamedTuple):
    """If the token holds the name, grant it to the first waiter, or free it and notify a waiter."""

    name: str
    token: str
    #: Whether the name may be granted to a waiter at once; otherwise it is freed.
    passes: bool


class JoinReaders(NamedTuple):
    """Share the unexpired hold of a group of readers, and extend it to a TTL from now at least.

    Refused if other waiters are in the queue before this reader, unless it goes ``past`` them.
    """

    name: str
    group: str
    token: str
    ttl: float
    ticket: str
    past: bool


class LeaveReaders(NamedTuple):
    """Stop sharing a hold; the last reader frees the name, and notifies the next waiter."""

    name: str
    group: str
    token: str


class CallReaders(NamedTuple):
    """Notify the readers that wait before the first writer for a name that readers share."""

    name: str
    group: str


class WaitInServer(NamedTuple):
    """Wait for the name's user lock."""

    name: str


class ReleaseAndUnlock(NamedTuple):
    """Free the name as :class:`Release` does, and release its user lock."""

    name: str
    token: str


class UnlockAll(NamedTuple):
    """Release all user locks of the session."""


class Look(NamedTuple):
    """Read the rows of names."""

    names: tuple[str, ...]


class LookQueued(NamedTuple):
    """Read a name's row, and the ticket's position in the queue."""

    name: str
    token: str
    ticket: str


class ListHeld(NamedTuple):
    """Read the rows of all names that have a token or waiters."""


class ListRowLocks(NamedTuple):
    """Read which transactions have locked the row of a name, or of any name."""

    name: str | None


# --- the witness ---------------------------------------------------------------------------------


class ReadWitness(NamedTuple):
    """Read the witness."""


class WriteWitness(NamedTuple):
    """Write a new witness if it is missing."""


class Distrust(NamedTuple):
    """Invalidate the witness; no present lease lasts for longer than ``longest`` seconds."""

    longest: float | None


class AnnounceTtl(NamedTuple):
    """Record, for after a failover, that leases with TTLs up to ``ttl`` may be granted."""

    ttl: float


class RecordTtl(NamedTuple):
    """Record, for after a crash, that leases with TTLs up to ``ttl`` are granted."""

    ttl: float


# --- the row lock, the guard, and their transactions ---------------------------------------------


class Create(NamedTuple):
    """Insert the free row of a name, unless it exists."""

    name: str


class Begin(NamedTuple):
    """Begin a row lock's own transaction."""


class Commit(NamedTuple):
    """Commit a row lock's own transaction, which releases its row locks."""


class Rollback(NamedTuple):
    """Roll back a row lock's own transaction."""


class Probe(NamedTuple):
    """Check that a row lock's own transaction still exists."""


class Savepoint(NamedTuple):
    """Create a savepoint in the user's transaction."""


class UndoSavepoint(NamedTuple):
    """Roll back to the savepoint, which releases the rows locked since."""


class EndSavepoint(NamedTuple):
    """Release the savepoint."""


class LockRow(NamedTuple):
    """Lock a free name's row until the transaction ends, which may be ``borrowed``."""

    name: str
    borrowed: bool


class Guard(NamedTuple):
    """Block, in the user's transaction, every grant of the name."""

    name: str
    token: str
    fence: int


class Apply(NamedTuple):
    """Record a key, in the user's transaction, unless it is recorded."""

    key: str


class Unapply(NamedTuple):
    """Delete a key that this transaction has recorded."""

    key: str


class Gate(NamedTuple):
    """Raise the largest fence in a user's own table, in the user's transaction."""

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
    """Delete the record of a call that this transaction has recorded."""

    key: str
    token: str


# --- the table of waiters ------------------------------------------------------------------------


class Register(NamedTuple):
    """Insert a waiter's row, or extend it."""

    id: str
    name: str
    strategy: str
    owner: str
    waited: float
    lasts: float
    holds: Mapping[str, int | None]


class Unregister(NamedTuple):
    """Delete a waiter's row."""

    id: str


class Sweep(NamedTuple):
    """Delete the rows of waiters that have expired."""


class ListWaiters(NamedTuple):
    """Read the waiters of a name, or of all names."""

    name: str | None


class ListBlocked(NamedTuple):
    """Read all waiters that hold something, each with the fence of the lease it waits for."""


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
    """Read the last ``limit`` runs of a name."""

    name: str
    limit: int
    slot: str | None = None


class ListLastRuns(NamedTuple):
    """Read each name's last run, for the ``limit`` names whose last runs are the latest."""

    limit: int


class ListHeldRuns(NamedTuple):
    """Read the runs under the present leases."""


class PruneApplied(NamedTuple):
    """Delete some of the keys that are older than ``age`` seconds."""

    age: float


class PruneOnce(NamedTuple):
    """Delete some of the calls' records that have expired."""


class PruneRuns(NamedTuple):
    """Delete some of the runs that are older than ``age`` seconds, except each name's last."""

    age: float


# --- unused names --------------------------------------------------------------------------------


class LookForUnused(NamedTuple):
    """Read a page of names after ``after``, and which of them were unused for ``idle`` seconds."""

    after: str
    idle: float


class RaiseFloor(NamedTuple):
    """Raise the floor: every name that is new from now on gets a fence above ``fence``."""

    fence: int


class Retire(NamedTuple):
    """Delete the rows of names after ``after``, up to ``last``, that were unused for ``idle``
    seconds and have fences up to ``fence``, the floor."""

    after: str
    last: str
    fence: int
    idle: float


class PruneValues(NamedTuple):
    """Delete some of the values that are older than ``age`` seconds and whose names have no row."""

    age: float


# --- a leader's value ----------------------------------------------------------------------------


class WriteValue(NamedTuple):
    """Write the value of a name, if the token holds it, under the hold's fence."""

    name: str
    token: str
    fence: int
    value: str


class ReadLeader(NamedTuple):
    """Read the holder of a name, and the value that this hold has written."""

    name: str


class CallObservers(NamedTuple):
    """Notify the observers of a name."""

    name: str


# --- sessions ------------------------------------------------------------------------------------


class EndSession(NamedTuple):
    """End a session, by the server's own id for it, even while it runs a statement."""

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

#: Commands that end or renew a hold, or leave a queue. They get a connection before commands that
#: ask for a name.
FIRST = frozenset({Release, PassOn, LeaveReaders, Leave, Renew, EndSession})


@cache
def word(name: str) -> str:
    """Return the word for a command, from the name of its class: ``"grant"``, ``"lock_row"``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
