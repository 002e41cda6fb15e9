"""A database as the protocol sees it: its traits, its timing, the place of its tables.

Its statements are the commands in :mod:`dblock.protocol.commands`; a dialect registers its SQL for
each (:mod:`dblock.dialects.statement`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from .commands import SeeHidden
from .state import Place
from .timing import Timing

if TYPE_CHECKING:
    from ..policy import Timeouts


@dataclass(frozen=True)
class Traits:
    """What dblock may rely on with a database, and what it has to allow for."""

    #: A refused row lock still blocks the row for others until its transaction ends. So a separate
    #: statement reads the name before the transaction locks it.
    refusal_holds: bool = False
    #: The statement that locks a row in a transaction of dblock's own reads the name first itself.
    looks_itself: bool = False
    #: In a borrowed transaction a row lock that never waits costs less than a row lock that may
    #: wait, so dblock tries it first.
    skips_locked: bool = False
    #: A plain read in a transaction may be older than the row that an update in it has just seen.
    stale_reads: bool = False
    #: A failed statement undoes its whole transaction, so dblock cannot retry the statement in it.
    failure_aborts: bool = False
    #: One transaction writes at a time: a row lock blocks every other lock statement, and the
    #: locking transaction itself creates the row of a new name.
    one_writer: bool = False
    #: Statements that grant, renew or prove a lease check the witness (:mod:`.epoch`). Without a
    #: witness the lock table itself has to survive a crash.
    has_witness: bool = False
    #: The database notifies a waiter in a name's queue of its turn; without this waiters poll.
    can_notify: bool = False
    #: One statement can read which transaction has locked a row. An instance whose role may not
    #: read that replaces it.
    sees_row_locks: bool = False
    #: Each name has a user lock, and waiters can wait for the user lock in the server.
    can_wait_in_server: bool = False


class AbstractDialect(ABC):
    """A database with dblock's tables in ``schema``, as procedures see it."""

    name: ClassVar[str]
    #: An instance for MySQL or MariaDB replaces it when it learns whether its server is a node of a
    #: cluster; and any, in :meth:`hide_row_locks`.
    traits: Traits
    schema: str | None
    prefix: str
    timeouts: Timeouts
    timing: Timing
    #: The command that creates and upgrades the tables, if it is not ``dblock upgrade``.
    upgraded_by: str = ""
    #: The location of the tables, once one of dblock's own connections has read it; and the
    #: location before the tables were recreated or moved.
    place: Place | None = None
    former_place: Place | None = None

    @property
    def grace(self) -> float:
        """Seconds for which a free name is reserved for each waiter in the queue; see
        :class:`.Timing`."""
        return self.timing.grace

    @property
    def longest_patience(self) -> float | None:
        """The longest time in seconds that one statement may wait before dblock sends it again;
        None for no limit."""
        return None

    @abstractmethod
    def privileges(self, role: str) -> tuple[str, ...]:
        """Return the statements that grant a role its rights, or a sentence that says them."""

    def hide_row_locks(self) -> None:
        """Take it from now on that this role is not shown which transactions have locked rows."""
        self.traits = replace(self.traits, sees_row_locks=False)

    # --- location of the tables --------------------------------------------------------------

    def hidden(self) -> tuple[SeeHidden, ...]:
        """Return one command for each table that a temporary table may hide in a user's
        session."""
        return ()

    @abstractmethod
    def settle(self, place: Place | None) -> None:
        """Qualify the tables' names with their place from now on, for every session.

        A statement for a user's transaction matches no row in any other set of tables. With None
        the place is unknown again, and dblock reads it before the next use.
        """

    def topic(self, name: str) -> str:
        """Return the topic under which the observers of a name are notified."""
        raise NotImplementedError(f"{self.name} notifies nobody: observers of a name poll")
