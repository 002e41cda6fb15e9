"""The common base of all databases' statements, and how they write values and names differently.

There is one lock table with one row per name. The row stays between holds, because a fence may
never start again, and because inserting and deleting rows would make InnoDB deadlock, and a row
lock miss the row. A row is free when its token is NULL or its expiry has passed. Only the row of a
name that was not used for long is deleted (:mod:`.retiring`).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

from ..errors import Unsupported
from ..policy import Timeouts
from ..protocol import commands
from ..protocol.commands import Command, FinishOnce, ForgetOnce
from ..protocol.schema_version import Schema
from ..protocol.state import (
    Found,
    Granted,
    LockRow,
    Place,
    Queued,
    QueuePosition,
    Record,
    RowOutcome,
)
from ..protocol.statements import Statements
from ..protocol.steps import Query, Reply
from ..protocol.timing import Timing
from .adapter import Adapter
from .statement import Statement, Text, registered, statement
from .values import UNPLACED, Values, text, utc

R = TypeVar("R")

# The number of :attr:`Dialect.columns`.
_COLUMNS = 8


#: A statement for SQLAlchemy's text(), and its parameters.
Bound = tuple[str, dict[str, str]]


class Dialect(Values, Statements):
    """One database's statements over the tables ``{schema}.{prefix}...``, and its adapter.

    Code that runs statements asks a dialect's attributes, and never branches by a database's name.
    """

    #: SQLAlchemy's names for this database.
    backends: ClassVar[tuple[str, ...]]
    #: The adapter of the usual driver.
    driver: ClassVar[type[Adapter]]

    #: Whether a number has the type of the written value, not of its column: a whole number has 64
    #: bits, any other is a double.
    dynamic_types: ClassVar[bool] = False

    #: Whether rolling back a transaction undoes its changes of tables.
    undoes_ddl: ClassVar[bool] = True
    #: Begins a statement in a user's transaction that may lock a row (under SERIALIZABLE a
    #: statement that only reads does too): it lets the statement use the newest row, if the level
    #: allows it.
    newest: ClassVar[str] = ""

    #: The seconds to a row's expiry.
    remaining: ClassVar[str]
    #: Whether a row has not expired.
    lasting: ClassVar[str]
    #: The server's clock, in UTC if the database stores no zone.
    clock: ClassVar[str]
    #: The time ``age`` seconds before it.
    ago: ClassVar[str]
    #: The time some seconds after it. :meth:`shift` makes the seconds a parameter.
    later: ClassVar[str]

    #: By fields of :class:`.Place`: SQL over the table ``s`` that has the identity. A database
    #: leaves out the fields that it does not have.
    found: ClassVar[dict[str, str]]
    #: The part of a statement's text by which a crash may undo the statement, if there is any.
    lazy: ClassVar[str] = ""

    #: The statements, by their commands; and the commands that this database does not have, with
    #: the reasons.
    registered: ClassVar[Mapping[type[Command[Any]], Statement[Any]]] = {}
    unsupported: ClassVar[Mapping[type[Command[Any]], str]] = {}

    #: Ends a read in a user's transaction that must not take the transaction's snapshot.
    locking: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.registered = registered(cls)

    def __init__(
        self, schema: str | None, prefix: str, timeouts: Timeouts, adapter: Adapter | None = None
    ) -> None:
        self.schema = schema
        self.prefix = prefix
        self.timeouts = timeouts
        self.timing = Timing()
        self.adapter = self.driver(timeouts) if adapter is None else adapter
        #: The texts of the statements over these tables.
        self.built: dict[object, Text] = {}
        self._name_tables()

    def query(self, command: Command[R]) -> Query[R]:
        # This is one function, because every statement passes it.
        found = self.registered.get(type(command))
        if found is None:
            raise NotImplementedError(f"{self.name} {self.unsupported[type(command)]}")
        key = (found, found.build(self, command)) if found.varies else found
        text = self.built.get(key) or found.examine(self, key)
        params: dict[str, object] = {}
        for field, write in text.fields:
            value = getattr(command, field)
            params[field] = value if write is None or value is None else write(self, value)
        if found.parameters is not None:
            params |= found.parameters(self, command)
        timeout = found.lock_timeout
        if timeout == "usual":
            timeout = self.patience
        elif callable(timeout):
            timeout = timeout(self, command)
        read = found.read if found.reads is None else partial(found.reads, command)
        return Query(text.sql, params, command, timeout, text.durable, read)

    def _name_tables(self) -> None:
        """Set the tables' names for the statements."""
        self.lock_table = self._named("lock")
        self.applied_table = self._named("applied")
        self.once_table = self._named("once")
        self.value_table = self._named("value")
        self.waiter_table = self._named("waiter")
        self.run_table = self._named("run")
        self.schema_table = self._named("schema")
        #: Whether the statement's tables are these, because a user's transaction may be in another
        #: database. While the place is unknown this is false: the statement matches no row, and
        #: its caller finds out where it is.
        self.here = self._is_here()

    @property
    def longest_patience(self) -> float | None:
        return self.adapter.longest_wait

    def table(self, name: str) -> str:
        """Return a table's name, quoted for this database. It is qualified if the schema is known;
        else the session's own search path decides. For people, and for the user's sessions."""
        return self.placed(self._named(name))

    def _named(self, name: str) -> str:
        place = self.place
        schema = self.schema or (place and place.schema)
        return f"{self.quote(schema) if schema else UNPLACED}.{self.quote(self.prefix + name)}"

    def placed(self, sql: str) -> str:
        """Return a statement with the place of the tables, which was unknown when it was made."""
        place = self.place
        if UNPLACED not in sql:
            return sql
        if place is None:
            return sql.replace(f"{UNPLACED}.", "")
        return sql.replace(UNPLACED, self.quote(place.schema))

    def quote(self, identifier: str) -> str:
        return f'"{identifier}"'

    def literal(self, said: str) -> str:
        """Return a text as a SQL literal that means the same in every session."""
        return "'" + said.replace("'", "''") + "'"

    # --- where the tables are ----------------------------------------------------------------

    def settle(self, place: Place | None) -> None:
        made = copy.copy(self)
        made.former_place, made.place = self.place or self.former_place, place
        made.built = {}
        made._name_tables()
        derived = [  # statements that contain the tables' names
            name
            for name in vars(self) | vars(made)
            if isinstance(getattr(type(self), name, None), cached_property)
        ]
        for name in derived:
            vars(made).pop(name, None)
        vars(self).update(vars(made))  # in one step, so that no thread sees half of it
        for name in derived:
            vars(self).pop(name, None)

    def look_around(self, *, borrowed: bool = False) -> Query[Found]:
        sql = f"SELECT {', '.join(self.found.values())}, s.* FROM {self.schema_table} AS s"
        return Query(
            f"{self.newest} {self.placed(sql)}{self.locking}".lstrip() if borrowed else sql,
            {},
            commands.LookAround(),
            self.patience,
            read=self._read_place,
        )

    def _read_place(self, reply: Reply) -> Found:
        row = reply.rows[0] if reply.rows else ()
        schema, identity = Schema.of(row[len(self.found) :]), row[len(self.found) + 2 :]
        if not any(identity):
            return Found(schema, None)
        told: dict[str, Any] = {
            what: None if value is None else str(text(value))
            for what, value in zip(self.found, row, strict=False)
        }
        if self.schema:
            told["schema"] = self.schema
        return Found(schema, Place(text(identity[0]), **told, clustered=self.adapter.clustered))

    def _is_here(self, reading: str = "") -> str:
        """Compare the identity in the table with the place's; ``reading`` is the lock mode of that
        read."""
        place = self.place
        if place is None:
            return "1 = 0"
        conditions = [f"s.identity = {self.literal(place.identity)}"]
        for what in ("container", "writer"):
            if what in self.found:
                said = self.literal(str(getattr(place, what)))
                conditions.append(f"{self.found[what]} = {said}")
        where = " AND ".join(conditions)
        return f"EXISTS (SELECT 1 FROM {self.schema_table} AS s WHERE {where}{reading})"

    def privileges(self, role: str) -> tuple[str, ...]:
        """Return the statements that grant a role its rights."""
        return tuple(
            f"GRANT {rights} ON {table} TO {role};" for table, rights in self.rights().items()
        )

    def rights(self) -> dict[str, str]:
        """Return the rights that are needed, by tables."""
        return {
            self.table("lock"): "SELECT, INSERT, UPDATE, DELETE",
            self.table("applied"): "SELECT, INSERT, DELETE",
            self.table("once"): "SELECT, INSERT, UPDATE, DELETE",
            self.table("value"): "SELECT, INSERT, UPDATE, DELETE",
            self.table("waiter"): "SELECT, INSERT, UPDATE, DELETE",
            self.table("run"): "SELECT, INSERT, UPDATE, DELETE",
            self.table("schema"): "SELECT",
        }

    @property
    def floor(self) -> str:
        """The fence above which a new row begins: no deleted row had a larger one.

        A statement must read it in the same snapshot in which it sees that the name has no row.
        """
        return f"COALESCE((SELECT fence FROM {self.lock_table} WHERE lock_name = ''), 0)"

    # --- reading names -----------------------------------------------------------------------

    @property
    def complete(self) -> str:
        """A further condition, which begins with AND: MariaDB's guard row must exist too."""
        return ""

    def look(self, *names: str) -> Query[list[LockRow]]:
        if len(names) == 1:
            keys = {"name": self.key(names[0])}
            where = f"= {self.name_parameter}"
        else:
            keys = {f"name{number}": self.key(name) for number, name in enumerate(names)}
            where = f"IN ({', '.join(map(self.parameter, keys))})"
        return Query(
            f"{self._select()} WHERE lock_name {where}{self.complete}",
            keys,
            commands.Look(names),
            self.patience,
            read=_rows,
        )

    def held(self) -> Query[list[LockRow]]:
        waited_for = f"SELECT lock_name FROM {self.waiter_table} WHERE {self.lasting}"
        return Query(
            f"""{self._select()}
            WHERE token IS NOT NULL OR lock_name IN ({waited_for}) ORDER BY lock_name""",
            {},
            commands.ListHeld(),
            self.patience,
            read=_rows,
        )

    def look_queued(self, name: str, token: str, ticket: str) -> Query[Queued | None]:
        return Query(
            f"""SELECT {self.columns}, {self.position_columns}
            FROM {self.lock_table} WHERE lock_name = {self.name_parameter}{self.complete}""",
            {"name": self.key(name), "token": token, "ticket": ticket},
            commands.LookQueued(name, token, ticket),
            self.patience,
            read=_look_queued,
        )

    def _select(self) -> str:
        return f"SELECT {self.columns} FROM {self.lock_table}"

    @property
    def columns(self) -> str:
        """The columns of a name's row."""
        return f"lock_name, fence, token, owner, acquired_at, expires_at, {self.remaining}, readers"

    # --- the position in the queue -----------------------------------------------------------

    @property
    @abstractmethod
    def ahead(self) -> str:
        """The number of waiters before the ticket, or before a requester that has not joined."""

    @property
    @abstractmethod
    def enqueued(self) -> str:
        """Whether the ticket is in the queue."""

    @abstractmethod
    def is_available(self, ahead: str) -> str:
        """Whether the name is free for a requester with ``ahead`` waiters before it.

        A release sets the expiry to its own time, from which a free name is kept for each waiter
        for the grace. A release by an earlier version's code only cleared the token: such a name,
        whose expiry is still to come, is kept for no waiter.
        """

    @property
    def position_columns(self) -> str:
        """The ticket's position, and whether it is its turn."""
        return f"CASE WHEN {self.enqueued} THEN {self.ahead} END, {self.is_available(self.ahead)}"

    # --- calls that are made once ------------------------------------------------------------

    #: The time ``keep`` seconds (a parameter) after the clock, in a user's session.
    kept_until: ClassVar[str]
    #: The parameters of a key and a result in a user's session.
    exact_key: ClassVar[str]
    exact_result: ClassVar[str]

    @statement(FinishOnce, lock_timeout=None)
    def finish_once(self) -> str:
        return f"""UPDATE {self.once_table} SET result = {self.exact_result}
            WHERE idempotency_key = {self.exact_key} AND token = {self.parameter("token")}"""

    @statement(ForgetOnce, lock_timeout=None)
    def forget_once(self) -> str:
        return f"""DELETE FROM {self.once_table}
            WHERE idempotency_key = {self.exact_key} AND token = {self.parameter("token")}"""

    # --- migrations --------------------------------------------------------------------------

    def set_durability(self, durability: str) -> tuple[str, ...]:
        """Return the statements that make the lock table ``"durable"`` or ``"volatile"``."""
        if durability == "durable":
            return ()
        raise Unsupported(
            f"{self.name} has no tables that a crash empties and nothing else does, so its lock "
            "table is durable; a volatile one works on postgresql"
        )

    def create_functions(self) -> tuple[str, ...]:
        """Return the statements that create the lock functions, or bring them up to date."""
        raise Unsupported(
            f"{self.name} has no lock functions; they work on postgresql. On {self.name} use "
            "dblock, or its command line"
        )

    def drop_functions(self) -> tuple[str, ...]:
        """Return the statements that drop the lock functions, if the database has any."""
        return ()

    def drop_gate(self) -> tuple[str, ...]:
        """Return the statements that drop the functions' table of fences, if they created it."""
        return ()

    def find_functions(self) -> str | None:
        """Return the query for the lock functions, and whether each is as this code creates it.

        None if the database has no lock functions.
        """
        return None

    def migration_settings(self) -> tuple[str, ...]:
        """Return statements after which a migration does not wait long for users of a table.

        All other statements on the table wait behind the migration. A limit that is set stays.
        """
        return ()

    def migration_place(self) -> tuple[str, ...]:
        """Return queries, of one value each, that show where unqualified tables are.

        They run on a user's connection. None of them takes a snapshot.
        """
        return ()

    def go_to_place(self, found: tuple[str | None, ...]) -> tuple[Bound, ...]:
        """Return the statements that take a connection to the place that the queries ``found``."""
        return ()

    def look_at_place(
        self, found: tuple[str | None, ...]
    ) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
        """Return the statements before and after a read at the place that the queries ``found``,
        for a connection that must not stay there."""
        return (), ()

    def migration_mutex(self, name: str) -> tuple[str, ...]:
        """Return the statements of one try for the lock of migrations, which needs no table.

        The last one's only value tells whether the session has it now. It ends with the connection.
        """
        raise NotImplementedError(f"{self.name} has none: a file is locked")

    def migration_holder(self, name: str) -> str:
        """Return the statement that reads the session that has that lock, and its user.

        Either may be unknown.
        """
        raise NotImplementedError(f"{self.name} has none: a file is locked")


def read_grant(reply: Reply) -> Granted | None:
    """Read the fence and the seconds to the expiry from the first columns; None without a grant."""
    if not reply.rows or reply.rows[0][0] is None:
        return None
    fence, remaining, *_ = reply.rows[0]
    return Granted(fence, float(remaining))


def read_join(reply: Reply) -> Granted | Queued | None:
    """Read the reply to a join: three columns of a grant, as in :func:`read_grant`, then the name's
    row and the ticket's position, if it is in the queue."""
    return read_grant(reply) or read_joined(reply)


def read_joined(reply: Reply) -> Queued | None:
    """Read the reply to a join that is known not to be a grant."""
    queued = read_queued(reply.rows[0][3:]) if reply.rows else None
    return None if queued is None or queued.position.ahead is None else queued


def read_fence(reply: Reply) -> int:
    """Read the reply's only value, a fence."""
    return int(reply.rows[0][0])


def read_attached(reply: Reply) -> int | None:
    """Read the fence of the hold that was attached, from the first column."""
    return int(reply.rows[0][0]) if reply.rows else None


def read_renewed(reply: Reply) -> dict[str, int | None]:
    """Read the tokens of the holds that were renewed, and their fences."""
    return {row[0]: row[1] for row in reply.rows}


def read_record(reply: Reply) -> Record | None:
    """Read the record of a call: its first columns are the token, the fingerprint, the result."""
    if not reply.rows or reply.rows[0][0] is None:
        return None
    token, *columns = reply.rows[0][:3]
    return Record(text(token), *(None if said is None else text(said) for said in columns))


def read_row_lock(reply: Reply) -> RowOutcome:
    """Read whether the row was locked: then the reply has it."""
    return RowOutcome(bool(reply.rows))


def _rows(reply: Reply) -> list[LockRow]:
    return list(map(_row, reply.rows))


def _row(columns: Sequence[Any]) -> LockRow:
    name, fence, token, owner, acquired_at, expires_at, remaining, readers = columns
    return LockRow(
        name=text(name),
        fence=int(fence),
        token=token,
        owner=owner,
        acquired_at=utc(acquired_at),
        expires_at=utc(expires_at),
        remaining=None if remaining is None else float(remaining),
        readers=None if readers is None else text(readers),
    )


def _look_queued(reply: Reply) -> Queued | None:
    return read_queued(reply.rows[0]) if reply.rows else None


def read_queued(columns: Sequence[Any]) -> Queued:
    """Read a name's row, and behind it a ticket's position."""
    ahead, free, *clock = columns[_COLUMNS:]
    position = QueuePosition(None if ahead is None else int(ahead), bool(free), *clock)
    return Queued(_row(columns[:_COLUMNS]), position)
