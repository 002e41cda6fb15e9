"""The exit codes: from sysexits(3) if it has one, and the shell's for the command's end."""

from __future__ import annotations

import signal

from ..errors import (
    DBLockError,
    LimitMismatch,
    LockLost,
    Misconfigured,
    NotAcquired,
    SchemaMissing,
    Unavailable,
    Unsupported,
)

OK = 0
FREE = 1  # show, release: nobody held it; resize: there is no such semaphore
WRONG = 1  # doctor
OPEN = 1  # runs --reopen: no run has succeeded in the slot
USAGE = 64  # EX_USAGE
UNAVAILABLE = 69  # EX_UNAVAILABLE
INTERNAL = 70  # EX_SOFTWARE
IO = 74  # EX_IOERR
BUSY = 75  # EX_TEMPFAIL
CONFIG = 78  # EX_CONFIG
LOST = 79  # the first above sysexits; neither shells nor timeout(1) use it
NOT_EXECUTABLE = 126
NOT_FOUND = 127
SIGNALLED = 128
INTERRUPTED = SIGNALLED + signal.SIGINT

HELP = f"""\b
Exit codes:
  {OK:3}  done; run: the command succeeded, or had succeeded in its slot (-D changes that)
  {FREE:3}  show, release: nobody held it; resize: no such semaphore; doctor: something is wrong;
       runs: nothing to reopen
  {USAGE:3}  wrong usage
  {UNAVAILABLE:3}  the database was not reached, or cannot serve now: try again later
  {INTERNAL:3}  the outcome is unknown, or an internal error
  {IO:3}  the output could not be written
  {BUSY:3}  busy: another holds the lock (run -E changes that)
  {CONFIG:3}  wrong set-up: no tables (run dblock upgrade), a wrong password or database, no driver,
       a role without rights
  {LOST:3}  the lock was lost while the command ran, or --at-most was over
  {NOT_EXECUTABLE:3}  the command cannot be executed
  {NOT_FOUND:3}  the command was not found
  {SIGNALLED}+N  signal N ended the command
  otherwise the command's own exit code"""

_CODES: tuple[tuple[type[DBLockError], int], ...] = (
    (NotAcquired, BUSY),
    (LockLost, LOST),
    (LimitMismatch, USAGE),
    (SchemaMissing, CONFIG),
    (Unsupported, CONFIG),
    (Misconfigured, CONFIG),
    (Unavailable, UNAVAILABLE),
)


def code_of(error: DBLockError) -> int:
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)
