"""Commands: what the protocol asks of the database, as values that are equal on all databases.

SQL and parameters differ between databases; the command does not. A command's docstring is the
contract of its statement, and its class has the type of the reply. Each dialect registers a
statement for each command that it does not list as unsupported (:mod:`dblock.dialects.statement`).
The drivers send those of :mod:`.sessions` themselves. A primitive that no other one needs may keep
its command beside its procedure, as a rate limit does. A simulated database executes the commands,
and code that observes statements recognizes them by their commands.
"""

from __future__ import annotations

from .command import Command, Duration, Encoding, Exact, Limit, Name, word
from .election import CallObservers, ReadLeader, WriteValue
from .lease import Attach, Grant, PassOn, Release, Renew
from .looking import ListHeld, ListRowLocks, Look
from .members import RaiseFences, ReadMember, Stamp, Vote, WriteMember
from .place import LookAround, SeeHidden
from .pruning import (
    LookForUnused,
    PruneApplied,
    PruneOnce,
    PruneRuns,
    PruneValues,
    RaiseFloor,
    Retire,
)
from .queue import Join, Leave, LookQueued, ReleaseAndUnlock, Take, UnlockAll, WaitInServer
from .readers import CallReaders, JoinReaders, LeaveReaders
from .records import Apply, ClaimOnce, FinishOnce, ForgetOnce, Gate, Unapply
from .row import Create, Guard, SelectForUpdate
from .runs import BeginRun, EndRun, ForgetRun, ListHeldRuns, ListLastRuns, ListRuns, ReadClock
from .sessions import (
    Begin,
    Commit,
    EndSavepoint,
    EndSession,
    Probe,
    Rollback,
    Savepoint,
    UndoSavepoint,
)
from .slots import GrantSlot, LookAtSlots, SetLimit
from .waiters import ListBlocked, ListWaiters, Register, Sweep, Unregister
from .witness import AnnounceTtl, Distrust, ReadWitness, RecordTtl, WriteWitness

#: Commands that end or renew a hold, or leave a queue. They get a connection before commands that
#: ask for a name.
FIRST = frozenset({Release, PassOn, LeaveReaders, Leave, Renew, EndSession})

__all__ = [
    "FIRST",
    "AnnounceTtl",
    "Apply",
    "Attach",
    "Begin",
    "BeginRun",
    "CallObservers",
    "CallReaders",
    "ClaimOnce",
    "Command",
    "Commit",
    "Create",
    "Distrust",
    "Duration",
    "Encoding",
    "EndRun",
    "EndSavepoint",
    "EndSession",
    "Exact",
    "FinishOnce",
    "ForgetOnce",
    "ForgetRun",
    "Gate",
    "Grant",
    "GrantSlot",
    "Guard",
    "Join",
    "JoinReaders",
    "Leave",
    "LeaveReaders",
    "Limit",
    "ListBlocked",
    "ListHeld",
    "ListHeldRuns",
    "ListLastRuns",
    "ListRowLocks",
    "ListRuns",
    "ListWaiters",
    "Look",
    "LookAround",
    "LookAtSlots",
    "LookForUnused",
    "LookQueued",
    "Name",
    "PassOn",
    "Probe",
    "PruneApplied",
    "PruneOnce",
    "PruneRuns",
    "PruneValues",
    "RaiseFences",
    "RaiseFloor",
    "ReadClock",
    "ReadLeader",
    "ReadMember",
    "ReadWitness",
    "RecordTtl",
    "Register",
    "Release",
    "ReleaseAndUnlock",
    "Renew",
    "Retire",
    "Rollback",
    "Savepoint",
    "SeeHidden",
    "SelectForUpdate",
    "SetLimit",
    "Stamp",
    "Sweep",
    "Take",
    "Unapply",
    "UndoSavepoint",
    "UnlockAll",
    "Unregister",
    "Vote",
    "WaitInServer",
    "WriteMember",
    "WriteValue",
    "WriteWitness",
    "word",
]
