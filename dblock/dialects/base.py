"""What a database has to provide: its statements, how to read their rows, and its error codes.

A dialect is a small class of pure functions from values to :class:`Query` and from rows to
values, with flags for what differs. Nothing else in dblock asks for a database's name.

There is one lock table, one permanent row per name. Permanent, because a fence may never start
again, and because rows that come and go make InnoDB deadlock and row lockers miss. A row is free
when its token is NULL or its expiry has passed.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..errors import Unsupported
from ..protocol import commands
from ..protocol.faults import Fault
from ..protocol.state import Granted, LockRow, Passed, Place, Renewal, Witness
from ..protocol.steps import Query, Reply
from ..timeouts import Timeouts
from .jobs import JobStatements
from .look_alikes import recognise, refusal
from .values import text, utc
from .waiters import WaiterStatements

#: Characters of the ticket of one who looks for itself; it begins with :data:`UNCALLED`.
TICKET = 24
#: So many of them are told to who is called; the rest is a secret of its waiter and the lock table.
NUMBER = 12
UNCALLED = "00000000"

# A state's columns; those of a reply to one who may have joined a queue.
_COLUMNS, _JOINED = 7, 12

#: A statement's rows, and how many rows it was about.
Answer = tuple[Sequence[Sequence[Any]], int]


@dataclass(frozen=True, slots=True)
class Session:
    """How the server knows one connection of dblock's own.

    ``server`` is the same for two connections only if they reached the same server, in the same
    history of it. ``end`` ends the session, whatever it is at, and returns a row for as long as it
    is there. Both are None where that cannot be told, behind a pooler for one. ``doubts`` gets what
    the server says while it answers that makes an answer no proof.
    """

    server: str | None = None
    end: Query | None = None
    doubts: list[str] = field(default_factory=list, compare=False)


class Dialect(WaiterStatements, JobStatements, ABC):
    """One database's statements over the lock table ``{schema}.{prefix}lock``."""

    name: ClassVar[str]
    #: SQLAlchemy's names for this database, and its drivers known to work, the usual one first.
    backends: ClassVar[tuple[str, ...]]
    drivers: ClassVar[tuple[str, ...]]
    #: dblock's extra that installs the driver.
    extra: ClassVar[str | None] = None

    #: A refused row lock still keeps others off the row until its transaction ends, so the name
    #: is looked at from outside before it is locked.
    refusal_holds: ClassVar[bool] = False
    #: The statement that locks a row in a transaction of dblock's own takes that look itself.
    looks_itself: ClassVar[bool] = False
    #: A plain read in a transaction may be older than what an update in it has just seen.
    stale_reads: ClassVar[bool] = False
    #: A failed statement undoes its whole transaction, so that it cannot be tried again in it.
    failure_aborts: ClassVar[bool] = False
    #: One transaction writes at a time: a row lock keeps every other lock statement out, and the
    #: row of a new name is created in the locking transaction itself.
    one_writer: ClassVar[bool] = False
    #: A number is as it was written, not as its column's type says: a whole one has 64 bits, and
    #: any other is a double.
    dynamic_types: ClassVar[bool] = False
    #: Granting, renewing and proving statements look for the witness (:mod:`..protocol.epoch`).
    #: Without one the lock table itself has to outlive a crash.
    has_witness: ClassVar[bool] = False
    #: It calls the first in a name's queue; elsewhere whoever stands in it has to look.
    calls: ClassVar[bool] = False
    #: Names have gates, which are waited for in the server.
    has_gates: ClassVar[bool] = False
    #: How long a free name is kept for each one in the queue before the next may have it; seconds.
    grace: ClassVar[float] = 0.4
    #: The longest one statement may wait before it is sent again; None for no limit.
    longest_patience: float | None = None

    #: Its drivers are an event loop's; see :mod:`dblock.aio.dialects`.
    is_async: ClassVar[bool] = False

    #: What the real server calls itself, and the statement that asks.
    real: ClassVar[str]
    named: ClassVar[Query]
    #: Whether a server that only speaks the protocol is used all the same.
    trust_server: bool = False
    #: Whether it is known what the server is.
    recognised: bool = False

    def __init__(self, schema: str | None, prefix: str, timeouts: Timeouts) -> None:
        self.schema = schema
        self.prefix = prefix
        self.timeouts = timeouts
        self.lock_table = self.table("lock")
        self.applied_table = self.table("applied")
        self.waiter_table = self.table("waiter")
        self.run_table = self.table("run")

    def table(self, name: str) -> str:
        """Return a table's name, qualified and quoted for this database."""
        quoted = self.quote(self.prefix + name)
        return f"{self.quote(self.schema)}.{quoted}" if self.schema else quoted

    def quote(self, identifier: str) -> str:
        return f'"{identifier}"'

    # --- connections -------------------------------------------------------------------------

    def cursor(self, connection: Any) -> Any:
        """Return a cursor to keep for a connection; None where each statement has its own."""
        return None

    def send(
        self, connection: Any, query: Query, kept: Any = None, *, waits: bool = False
    ) -> Answer:
        """Run one statement on a driver's connection; on the cursor that is kept for it, if any.

        ``waits`` tells that it may wait for others, so that there is no use in waiting for it when
        nobody wants its answer any more.
        """
        cursor = connection.cursor()
        try:
            cursor.execute(query.sql, query.params)
            rows = cursor.fetchall() if cursor.description else ()
            matched = cursor.rowcount
            cursor.close()  # PyMySQL reads here what else the reply has in it
        except BaseException:
            with contextlib.suppress(Exception):
                cursor.close()  # or SQLite keeps the statement, and with it the file
            raise
        return rows, matched

    def ask(self, connection: Any, query: Query) -> Sequence[Any]:
        """Run a statement that is part of making a connection ready; return its first row."""
        rows, _ = self.send(connection, query)
        return rows[0] if rows else ()

    def set_autocommit(self, connection: Any) -> None:
        """Let each statement be a transaction."""
        connection.autocommit(True)

    def close(self, connection: Any) -> None:
        """Close a connection, whatever state it is in."""
        connection.close()

    @abstractmethod
    def connect_args(self, timeouts: Timeouts) -> dict[str, Any]:
        """Return the driver's arguments that carry out ``timeouts``."""

    def unbounded(self, connection: Any) -> list[str]:
        """Name the driver's arguments whose lack lets a connection of a lent engine hang."""
        return []

    @abstractmethod
    def bound_reads(self, connection: Any, seconds: float) -> None:
        """Let the client wait no longer for an answer from now on; then it ends the connection."""

    @abstractmethod
    def prepare_connection(self, connection: Any) -> Session:
        """Make a fresh connection of dblock's own ready: autocommit, and what the session needs."""

    def recognise(self, said: str | bytes, comment: str | bytes = "") -> bool:
        """Return whether the server is the real one, by what it says of itself.

        Raises Unsupported for one that is not, unless it is trusted.
        """
        other = recognise(text(said), self.real, text(comment))
        if other is not None and not self.trust_server:
            raise refusal(other)
        self.recognised = True
        return other is None

    def precedes(self, server: str, other: str) -> bool:
        """Whether a failover led from one server to the other, or would have."""
        return False

    @abstractmethod
    def is_usable(self, connection: Any) -> bool:
        """Return whether a connection is open, without asking the server."""

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        """Bound what a borrowed connection waits for, where no statement can say so itself.

        ``patience`` is for the lock of the whole database, ``within`` for the server's answer.
        """
        return contextlib.nullcontext()

    def can_resend(self, connection: Any, error: Exception) -> bool:
        """Mend the connection if the error proves that the statement never ran."""
        return False

    @abstractmethod
    def transaction_trouble(self, connection: Any, locking: bool) -> str | None:
        """Say why nothing can be locked in the transaction of this borrowed connection."""

    @abstractmethod
    def classify(self, error: BaseException) -> Fault | None:
        """Reduce a driver's error to a fault, by its code; None for a defect that is not one."""

    @abstractmethod
    def timed_out(self, error: BaseException) -> bool:
        """Whether it is the client that gave the connection, or the attempt to make one, up."""

    def privileges(self) -> str:
        """Say which grants a role needs."""
        return (
            f"GRANT SELECT, INSERT, UPDATE ON {self.lock_table}, "
            f"GRANT SELECT, INSERT, DELETE ON {self.applied_table}, "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {self.waiter_table}, "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {self.run_table} and "
            f"GRANT SELECT ON {self.table('schema')} TO <role>"
        )

    def prepare_migrator(self, connection: Any) -> None:
        """Make a connection ready that holds the lock of migrations, idle for hours perhaps."""
        self.prepare_connection(connection)

    def hurry(self) -> tuple[str, ...]:
        """Return statements after which a migration does not wait long for those who use a table.

        Everybody else waits behind it. What somebody has set stays.
        """
        return ()

    def migration_mutex(self, name: str) -> tuple[str, ...]:
        """Return the statements of one try for the lock of migrations, which needs no table.

        The last one's only value tells whether it is had. It ends with its connection.
        """
        raise NotImplementedError(f"{self.name} has none: a file is locked")

    def migration_holder(self, name: str) -> str:
        """Return the statement that tells the session which has that lock, and whose that is.

        Either may be unknown.
        """
        raise NotImplementedError(f"{self.name} has none: a file is locked")

    # --- the lease ---------------------------------------------------------------------------

    @abstractmethod
    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query:
        """Take the name if it is free, raising its fence; without waiting, writing nothing if not.

        It is free for who is not in the queue only when nobody is.

        A free name's fence is raised by this statement while it has the row, so fences grow in
        the order of the grants.
        """

    @abstractmethod
    def granted(self, reply: Reply, token: str) -> Granted | None: ...

    @abstractmethod
    def join(self, name: str, token: str, owner: str, ttl: float, ticket: str) -> Query:
        """Let the ticket stand in the queue, in the place of any other of the same token; this may
        wait for a moment. Where nobody is called, take the name if it is the ticket's turn."""

    def take(self, name: str, token: str, owner: str, ttl: float) -> Query:
        """Take the name if it is the turn of who stands in the queue, which may take a moment."""
        raise NotImplementedError(f"{self.name} takes a name when it is joined for")

    def stands(self, reply: Reply) -> tuple[LockRow, Place] | None:
        """Return what a grant that joined the queue said of the name.

        Its row has three columns for the grant, then the state, then the place.
        """
        if not reply.rows or len(reply.rows[0]) < _JOINED or reply.rows[0][10] is None:
            return None
        row = reply.rows[0]
        return self._lock_row(row[3:10]), _place(*row[10:])

    @abstractmethod
    def leave(self, name: str, token: str, ticket: str) -> Query:
        """Take a waiter out of the queue; call the next one if the name is free."""

    @property
    @abstractmethod
    def before(self) -> str:
        """How many stand in the queue before the ticket, or before one who only comes now."""

    @property
    @abstractmethod
    def standing(self) -> str:
        """Whether the ticket stands in the queue."""

    @abstractmethod
    def turn(self, before: str) -> str:
        """Whether the name is free for one with so many before it: a release sets the expiry too.

        One that only cleared the token, by the code of an earlier version, keeps it for nobody.
        """

    def listen(self, connection: Any, session: Session, token: Callable[[int], str]) -> str | None:
        """Let a connection hear of tickets that begin with what is returned, and of no others.

        None where it cannot. As long as it is open such tickets are taken to be waited with.
        ``token`` draws so many bytes, in hexadecimal.
        """
        return None

    def called(self, connection: Any) -> list[tuple[str, Passed | None]]:
        """Return the tickets called since, for a connection that can be read, and what was passed
        on to them."""
        raise NotImplementedError

    @property
    def place_columns(self) -> str:
        """Where the ticket stands, and whether it is its turn."""
        return f"CASE WHEN {self.standing} THEN {self.before} END, {self.turn(self.before)}"

    def look_queued(self, name: str, token: str, ticket: str) -> Query:
        """Read a name's row as :meth:`look` does, and where the ticket stands."""
        return Query(
            f"""SELECT {self._columns()}, {self.place_columns}
            FROM {self.lock_table} WHERE lock_name = {self.name_parameter}""",
            {"name": self.key(name), "token": token, "ticket": ticket},
            commands.LookQueued(name, token, ticket),
            self.patience,
        )

    def place(self, reply: Reply) -> Place:
        """Return what a look said of the way to the name."""
        if reply.rows and len(reply.rows[0]) > _COLUMNS:
            return _place(*reply.rows[0][_COLUMNS:])
        states = self.lock_rows(reply)
        return Place(None, free=not states or not states[0].held)

    @abstractmethod
    def renew(self, asked: Sequence[Renewal]) -> Query:
        """Move the expiries of unexpired holds, waiting for nobody.

        Where one row is in use the others may be renewed all the same, or the statement fails.
        """

    def renewed(self, reply: Reply) -> set[str]:
        """Return the tokens of the holds that were renewed."""
        return {row[0] for row in reply.rows}

    @abstractmethod
    def release(self, name: str, token: str) -> Query:
        """Free the name if the token holds it; one row when it did.

        Where names are passed on it does so only if nobody waits.
        """

    def pass_on(self, name: str, token: str, passes: bool = True) -> Query:
        """Make the name, if the token holds it, the first waiter's and tell that; one row when it
        did. Where that cannot be, or ``passes`` forbids it, free the name and call who waits."""
        return self.release(name, token)

    def wait_in_server(self, name: str, patience: float) -> Query:
        """Wait for the name's gate, ``patience`` seconds at most.

        The session has the gate from then on, or this fails: the gate, or the row, was busy.
        """
        raise NotImplementedError(f"{self.name} has no gates")

    def gate_was_held(self, reply: Reply) -> bool:
        """Whether it had to be waited for."""
        raise NotImplementedError(f"{self.name} has no gates")

    def let_go(self, name: str, token: str) -> Query:
        """Free the name, as :meth:`release` does, and its gate, on the session that has it."""
        raise NotImplementedError(f"{self.name} has no gates")

    def ungate(self) -> Query:
        """Let all gates of the session go."""
        raise NotImplementedError(f"{self.name} has no gates")

    def look(self, *names: str) -> Query:
        """Read the rows of names, waiting for nobody."""
        if len(names) == 1:
            keys = {"name": self.key(names[0])}
            where = f"= {self.name_parameter}"
        else:
            keys = {f"name{number}": self.key(name) for number, name in enumerate(names)}
            where = f"IN ({', '.join(map(self.parameter, keys))})"
        return Query(
            f"{self._select()} WHERE lock_name {where}", keys, commands.Look(names), self.patience
        )

    def held(self) -> Query:
        """Read the rows of all names that have a token, expired ones too, or are waited for."""
        waited_for = f"SELECT lock_name FROM {self.waiter_table} WHERE {self.remaining} > 0"
        return Query(
            f"""{self._select()}
            WHERE token IS NOT NULL OR lock_name IN ({waited_for}) ORDER BY lock_name""",
            {},
            commands.ListHeld(),
            self.patience,
        )

    def _select(self) -> str:
        return f"SELECT {self._columns()} FROM {self.lock_table}"

    def _columns(self) -> str:
        return f"lock_name, fence, token, owner, acquired_at, expires_at, {self.remaining}"

    def lock_rows(self, reply: Reply) -> list[LockRow]:
        return [self._lock_row(row[:_COLUMNS]) for row in reply.rows]

    def _lock_row(self, row: Sequence[Any]) -> LockRow:
        name, fence, token, owner, acquired_at, expires_at, remaining = row
        return LockRow(
            name=text(name),
            fence=int(fence),
            token=token,
            owner=owner,
            acquired_at=utc(acquired_at),
            expires_at=utc(expires_at),
            remaining=None if remaining is None else float(remaining),
        )

    # --- the witness -------------------------------------------------------------------------

    def closed(self, reply: Reply) -> bool:
        """Whether it was the witness that let a row lock be refused."""
        return False

    def witness(self) -> Query:
        """Read the witness."""
        raise NotImplementedError

    def witnessed(self, reply: Reply) -> Witness | None:
        raise NotImplementedError

    def write_witness(self) -> Query:
        """Write the witness anew if it is missing; one row when this statement did it.

        Unless the lock table has lost nothing this begins a new epoch, with a pause of the
        longest TTL. A pause that is longer is cut short.
        """
        raise NotImplementedError

    def announce_ttl(self, ttl: float) -> Query:
        """Let it be known, for after a failover, that TTLs as long as this may be granted."""
        raise NotImplementedError

    def record_ttl(self, ttl: float) -> Query:
        """Let it be known, for after a crash, that TTLs as long as this are granted from now on.

        Nothing, unless one as long is announced. Once a day those that nobody has asked for since
        are forgotten.
        """
        raise NotImplementedError

    def set_durability(self, durability: str) -> tuple[str, ...]:
        """Return the statements that make the lock table ``"durable"`` or ``"volatile"``."""
        if durability == "durable":
            return ()
        raise Unsupported(
            f"{self.name} has no tables that a crash empties and nothing else does, so its lock "
            "table is durable; a volatile one works on postgresql"
        )

    # --- the keys of applied changes ---------------------------------------------------------

    @abstractmethod
    def apply(self, key: str) -> Query:
        """Record a key, in the user's transaction; no row when it is recorded already."""

    @abstractmethod
    def unapply(self, key: str) -> Query:
        """Take back a key that this transaction has recorded."""

    # --- the row lock and the guard ----------------------------------------------------------

    @abstractmethod
    def create(self, name: str) -> Query:
        """Insert the free row of a name; no failure when it is there."""

    def begin(self, patience: float | None) -> tuple[Query, ...]:
        """Begin the row lock's own transaction."""
        return (Query("BEGIN", {}, commands.Begin()),)

    @abstractmethod
    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query:
        """Lock a free name's row until the transaction ends.

        ``patience`` is how long the server may wait for other transactions: 0 not at all, None
        without a limit. In a borrowed transaction no setting outlives the statement.
        """

    def row_locked(self, reply: Reply) -> bool:
        return bool(reply.rows)

    def stale_snapshot(self, reply: Reply) -> bool:
        """Whether the statement ran under a snapshot that cannot show newer rows."""
        return False

    @abstractmethod
    def guard(self, name: str, token: str, fence: int) -> Query:
        """Hold off, in the user's transaction, all who would take the name, not its renewal.

        One row when no later hold has been granted. Waits for nobody: whoever is in the way is
        taking the name.
        """


def _place(before: Any, free: Any, clock: float | None = None) -> Place:
    return Place(None if before is None else int(before), bool(free), clock)
