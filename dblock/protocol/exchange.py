"""One call's exchange with a database: about which name, until when, and with which failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..errors import DBLockError
from .commands import Command
from .explain import explain
from .faults import Fault, StatementError
from .retry import AGAIN, retry
from .steps import Procedure, Reply

if TYPE_CHECKING:
    from .dialect import AbstractDialect

T = TypeVar("T")


@dataclass(slots=True)
class Exchange:
    """One call's exchange with one database, about one name or none, and the call's time limits.

    The ``name`` is empty if the call is about no single name. For a semaphore it is the
    semaphore's; the request has the slot's.

    Times are in seconds of the process's monotonic clock. The call waits for the lock up to
    ``wait`` seconds from ``start``. None means for ever, or that the call waits for no lock: then
    only ``timeout`` limits it. ``timeout`` bounds how long the call retries to reach the database,
    and how long it settles a lost reply. ``now`` is the time of the last reply, sleep or failure.
    """

    dialect: AbstractDialect
    name: str
    start: float
    wait: float | None
    timeout: float
    now: float
    #: While the call settles a lost reply, ``wait`` does not apply.
    settling: bool = False

    # --- the deadline ------------------------------------------------------------------------

    @property
    def left(self) -> float | None:
        """The seconds until the wait is over, 0 afterwards; None without a ``wait``."""
        return None if self.wait is None else max(0.0, self.start + self.wait - self.now)

    @property
    def over(self) -> bool:
        return self.wait is not None and self.start + self.wait <= self.now

    @property
    def elapsed(self) -> float:
        return self.now - self.start

    @property
    def reach(self) -> float:
        """How many seconds longer the call tries to reach the database."""
        if self.wait is None or self.settling:
            return self.timeout
        return min(self.timeout, max(0.0, self.start + self.wait - self.now))

    def capped(self, seconds: float) -> float:
        """Return ``seconds``, or the seconds that are left if they are fewer."""
        return seconds if self.wait is None else min(seconds, self.left or 0.0)

    # --- commands ----------------------------------------------------------------------------

    def ask(
        self,
        command: Command[T],
        faults: frozenset[Fault] = AGAIN,
        *,
        patience: float | None = None,
        within: float | None = None,
    ) -> Procedure[Reply[T]]:
        """Execute a command, and retry it after ``faults``, as :func:`.retry` does.

        It retries for ``patience`` seconds; None for :attr:`reach`. ``within`` bounds the wait for
        each reply. Raises StatementError.
        """
        patience = self.reach if patience is None else patience
        try:
            reply = yield from retry(command, patience, self.now, faults, within)
        except StatementError as failure:
            self.now = failure.now
            raise
        self.now = reply.now
        return reply

    def ask_or_explain(
        self, command: Command[T], *, patience: float | None = None
    ) -> Procedure[Reply[T]]:
        """Execute a command that is always safe to repeat; raise the error for its failure."""
        try:
            return (yield from self.ask(command, patience=patience))
        except StatementError as failure:
            raise self.explain(failure, harmless=True) from failure.__cause__

    def read(self, command: Command[T]) -> Procedure[T]:
        """Execute a command that only reads, and return its answer; raise the error for a failure.

        Operators read with it, and a database that is away must not keep them waiting. So it raises
        each failure at once, except that an SQLite file is locked by a writer: then it retries for
        :attr:`.Timeouts.query` seconds from the start, as for any statement.
        """
        busy = self.dialect.timeouts.query
        try:
            reply = yield from retry(command, 0.0, self.start, AGAIN, busy=busy)
        except StatementError as failure:
            self.now = failure.now
            raise self.explain(failure, harmless=True) from failure.__cause__
        self.now = reply.now
        return reply.answer

    def delete_all(self, some: Command[int]) -> Procedure[int]:
        """Repeat a command that deletes some rows until there are none left; return how many."""
        count = 0
        while deleted := (yield from self.ask_or_explain(some)).answer:
            count += deleted
        return count

    def explain(self, failure: StatementError, *, harmless: bool = False) -> DBLockError:
        """Return the error for a failure; see :func:`.explain`."""
        return explain(self.dialect, failure, self.name or None, harmless=harmless)
