"""Every error dblock raises.

::

    DBLockError
    ├── NotAcquired (also a TimeoutError)  somebody else has it; says who, and until when
    ├── NotHeld (also a RuntimeError)      released or renewed without holding it
    ├── LockLost                           it was held and is no longer, not by choice; says why
    ├── DeadlockDetected                   this wait could never have ended
    ├── OutcomeUnknown                     the reply never came and could not be found out
    ├── Conflict                           another transaction came first: run yours again
    ├── NotEnough                          a counter would fall below its floor
    ├── Unavailable                        the database was not reached, or cannot serve now
    │   ├── ConnectTimeout                 no connection within Timeouts.connect
    │   ├── QueryTimeout                   the server gave a statement up, after Timeouts.query
    │   └── SocketTimeout                  no answer within Timeouts.socket
    ├── SchemaMissing                      the tables are missing, too old or too new
    └── Unsupported                        this database, driver or set-up cannot do it

Wrong arguments are ``TypeError``, ``ValueError`` or ``OverflowError``, raised before any I/O.
All of these can be pickled, so they cross process pools and task queues whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lock_state import LockState


class DBLockError(Exception):
    """The base of all errors of dblock. ``name`` is the lock's name where there is one."""

    def __init__(self, message: str = "", *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class NotAcquired(DBLockError, TimeoutError):
    """The lock was not free within the wait.

    ``holder`` is what the database last said of the lock, or None where it could not say: a row
    lock is invisible to other transactions.
    """

    def __init__(
        self, message: str = "", *, name: str | None = None, holder: LockState | None = None
    ) -> None:
        super().__init__(message, name=name)
        self.holder = holder


class NotHeld(DBLockError, RuntimeError):
    """Released, renewed or asked for its fence without being held by this handle.

    A RuntimeError too, as :mod:`threading` and :mod:`asyncio` raise for a lock that is not held.
    """


class LockLost(DBLockError):
    """The lock was held and is no longer, and not by the holder's choice.

    ``reason`` is one of

    ``"expired"``
        it ran out: it was not to be renewed (any more), or this process did not come to it;
    ``"unreachable"``
        it ran out because the database was not reached, or could not serve, when it was to be
        renewed;
    ``"taken over"``
        it ran out, and somebody else has had it since;
    ``"failover"``
        another server has taken the database's place, and what it knows of the lock may be older
        than what others were told;
    ``"crash"``
        the database crashed, and its lock table is volatile: it knows of no lease from before;
    ``"forced"``
        somebody freed it with ``release(name, force=True)``, or the database's clock was set
        forward: another had it before its time was over;
    ``"connection lost"``
        a row lock's transaction ended with its connection;
    ``"unknown"``
        it is gone, and why could not be looked up.
    """

    def __init__(self, message: str = "", *, name: str | None = None, reason: str = "") -> None:
        super().__init__(message, name=name)
        self.reason = reason


class DeadlockDetected(DBLockError):
    """Waiting would never have ended: the waiter waits for itself, or for a cycle with it in.

    ``cycle`` has the names that are waited for and the owner labels of their waiters, beginning
    with this one, where the cycle was found among dblock's own waiters; else it is empty.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        cycle: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message, name=name)
        self.cycle = cycle


class OutcomeUnknown(DBLockError):
    """A statement was sent, its reply never came, and what it did could not be found out since.

    Either the database could not be asked, or what was found there is not known to be on the
    standbys that its commits wait for.

    The lock may be held under this attempt's token until its TTL has passed. The protected
    section was not started.
    """


class Conflict(DBLockError):
    """Another transaction changed the row first. Run the whole transaction again."""


class NotEnough(DBLockError):
    """A counter would have fallen below its floor. ``available`` is what could have been taken."""

    def __init__(
        self, message: str = "", *, name: str | None = None, available: object = None
    ) -> None:
        super().__init__(message, name=name)
        self.available = available


class Unavailable(DBLockError):
    """The database could not be reached, or refused to serve. Nothing was changed."""


class ConnectTimeout(Unavailable):
    """No connection was made within ``Timeouts.connect``."""


class QueryTimeout(Unavailable):
    """The server gave a statement up: after ``Timeouts.query``, or because it was told to."""


class SocketTimeout(Unavailable):
    """No answer came within ``Timeouts.socket``. The connection was given up.

    Raised where that cannot have changed anything; where it can, OutcomeUnknown is.
    """


class SchemaMissing(DBLockError):
    """dblock's tables are missing, or older or newer than this code. Names the command to run."""


class Unsupported(DBLockError):
    """This database, driver or set-up cannot do what was asked. Names what can."""
