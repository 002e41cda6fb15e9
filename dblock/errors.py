"""Every error that dblock raises.

::

    DBLockError
    ├── NotAcquired (also a TimeoutError)  the lock has another holder; names it, and the expiry
    │   ├── InProgress                     another call with the same key has not ended
    │   └── RateLimited                    the rate limit has no place now; says when it has one
    ├── NotHeld (also a RuntimeError)      you released or renewed a lock that you do not hold
    ├── LockLost                           you held the lock, and it was lost; says why
    │   └── StaleFence                     a gate has seen a larger fence than yours
    ├── DeadlockDetected                   this wait could never have ended
    ├── OutcomeUnknown                     no reply came, and dblock could not find out the outcome
    ├── Conflict                           another transaction came first: run yours again
    ├── NotEnough                          a counter would fall below its floor
    ├── KeyReused                          the key belongs to a call with another payload
    ├── LimitMismatch (also a ValueError)  the semaphore has another limit
    ├── Unavailable                        the database was not reached, or cannot serve now
    │   ├── Misconfigured                  a password, a name or an option of the URL is wrong
    │   ├── ConnectTimeout                 no connection within Timeouts.connect
    │   ├── QueryTimeout                   the server canceled a statement, after Timeouts.query
    │   └── SocketTimeout                  no answer within Timeouts.socket
    ├── SchemaMissing                      the tables are missing, too old or too new
    └── Unsupported                        this database, driver or set-up cannot do it

Wrong arguments raise ``TypeError``, ``ValueError`` or ``OverflowError``, before any I/O. You can
pickle all of these errors, so they cross process pools and task queues whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lock_state import LockState


class DBLockError(Exception):
    """The base of all errors of dblock. ``name`` is the lock's name, or None if there is none."""

    def __init__(self, message: str = "", *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class NotAcquired(DBLockError, TimeoutError):
    """The lock was not free within the wait.

    ``holder`` is the last known state of the lock. It is None if the database could not show it:
    other transactions do not see a row lock.
    """

    def __init__(
        self, message: str = "", *, name: str | None = None, holder: LockState | None = None
    ) -> None:
        super().__init__(message, name=name)
        self.holder = holder


class NotHeld(DBLockError, RuntimeError):
    """You released or renewed a lock, or asked for its fence, and this handle does not hold it.

    It is a RuntimeError too, because :mod:`threading` and :mod:`asyncio` raise that for a lock that
    is not held.
    """


class LockLost(DBLockError):
    """You held the lock, and it ended although you did not release it.

    ``reason`` is one of

    ``"expired"``
        the lease expired: its options allowed no further renewal, or this process had no time for
        one; or no process attached the hold (:meth:`Lease.detach`) in time, or that process died;
    ``"unreachable"``
        the lease expired: when dblock wanted to renew it, it could not reach the database, or the
        database could not serve;
    ``"taken over"``
        the lease expired, or ended where it was attached, and another process has held it since; or
        another node of a Galera cluster has committed a lock of the same name before a row lock;
    ``"failover"``
        another server has replaced the database's server, and its state of the lock may be older
        than the state that clients have seen;
    ``"crash"``
        the database crashed, and its lock table is volatile: all earlier leases are lost;
    ``"forced"``
        an operator freed the lease with ``release(name, force=True)``, or the database's clock was
        set forward, so that another process had it before its time was over;
    ``"attached"``
        another process has attached the hold, and has it now;
    ``"released"``
        you attach a hold that was already released, by the process that attached it or by force;
    ``"connection lost"``
        a row lock's transaction ended with its connection;
    ``"unknown"``
        the lock has ended, and dblock could not find out why.
    """

    def __init__(self, message: str = "", *, name: str | None = None, reason: str = "") -> None:
        super().__init__(message, name=name)
        self.reason = reason


class StaleFence(LockLost):
    """A gate has seen a larger fence than yours, so another process has held the lock since. Or the
    lock that you release by force has another fence than you named.

    ``fence`` is yours, ``newest`` the largest that the gate has seen, or None if that is not known;
    for a release by force it is the fence of the present hold. The ``reason`` is ``"taken over"``.
    Roll a guarded transaction back.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        fence: int | None = None,
        newest: int | None = None,
    ) -> None:
        super().__init__(message, name=name, reason="taken over")
        self.fence = fence
        self.newest = newest


class DeadlockDetected(DBLockError):
    """This wait would never have ended: you wait for yourself, or you are in a cycle of waiters.

    If dblock found the cycle among its own waiters, ``cycle`` has a pair for each of them, the name
    that it waits for and its owner label, this waiter first. Otherwise ``cycle`` is empty.
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
    """dblock sent a statement, got no reply, and could not find out what the statement did.

    Either dblock could not ask the database, or it does not know whether the statement's commit has
    reached the standbys that the database waits for.

    This attempt may hold the lock until the TTL has passed. Your protected section did not start.
    """


class Conflict(DBLockError):
    """Another transaction changed the row first. Run the whole transaction again."""


class NotEnough(DBLockError):
    """The counter would have fallen below its floor. ``available`` is how much you could take."""

    def __init__(
        self, message: str = "", *, name: str | None = None, available: object = None
    ) -> None:
        super().__init__(message, name=name)
        self.available = available


class InProgress(NotAcquired):
    """Another call with the idempotency key ``name`` has not ended within the wait.

    If that call succeeds, a later try gets its result. If it fails, a later try is the first.
    """


class RateLimited(NotAcquired):
    """The rate limit had no place for this call within the wait. The call has changed nothing.

    ``retry_after`` is the number of seconds until there is a place, if no other caller takes it
    first. Rounded up, it is the value of HTTP's header ``Retry-After``.
    """

    def __init__(
        self, message: str = "", *, name: str | None = None, retry_after: float = 0.0
    ) -> None:
        super().__init__(message, name=name)
        self.retry_after = retry_after


class KeyReused(DBLockError):
    """The idempotency key belongs to a call with another fingerprint. ``name`` is the key."""


class LimitMismatch(DBLockError, ValueError):
    """A semaphore has another limit than you gave: every process has to give the same limit.

    ``limit`` is yours, ``stored`` the semaphore's, or None if the name is not a semaphore's.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        limit: int | None = None,
        stored: int | None = None,
    ) -> None:
        super().__init__(message, name=name)
        self.limit = limit
        self.stored = stored


class Unavailable(DBLockError):
    """dblock could not reach the database, or the database refused to serve. Nothing changed."""


class Misconfigured(Unavailable):
    """The database cannot be connected to as it is set up.

    The password or the user is wrong, there is no such database, or an option of the URL has no
    such value. Trying again does not help before an operator changes that. dblock still tries for
    the same time as after any Unavailable, because the password may be changing at that moment.
    """


class ConnectTimeout(Unavailable):
    """dblock got no connection within ``Timeouts.connect``."""


class QueryTimeout(Unavailable):
    """The server cancelled a statement: after ``Timeouts.query``, or because of an operator."""


class SocketTimeout(Unavailable):
    """No reply came within ``Timeouts.socket``, so dblock closed the connection.

    You get this error if the statement cannot have changed anything. If it can, you get
    OutcomeUnknown.
    """


class SchemaMissing(DBLockError):
    """dblock's tables are missing, too old or too new for this code. Names the command to run."""


class Unsupported(DBLockError):
    """This database, driver or set-up cannot do what you asked for. Names what can."""
