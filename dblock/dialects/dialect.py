"""The common base of all databases' statements, and how they write values and names differently.

There is one lock table with one row per name. The row stays between holds, because a fence may
never start again, and because inserting and deleting rows would make InnoDB deadlock, and a row
lock miss the row. A row is free when its token is NULL or its expiry has passed. Only the row of a
name that was not used for long is deleted (:mod:`.retiring`).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

from ..policy import Timeouts
from ..protocol.commands import (
    Begin,
    Command,
    FinishOnce,
    ForgetOnce,
    ListHeld,
    Look,
    LookAround,
    LookQueued,
)
from ..protocol.dialect import AbstractDialect
from ..protocol.schema_version import Schema
from ..protocol.state import Found, Place
from ..protocol.timing import Timing
from .adapter import Adapter
from .migrations import Migrations
from .query import Query, Result
from .replies import read_look, read_rows
from .statement import Statement, Text, statement, statements_of
from .values import UNPLACED, Values, text

R = TypeVar("R")


def _keys(dialect: Dialect, command: Look) -> dict[str, object]:
    """Return the names as parameters."""
    if len(command.names) == 1:
        return {"name": dialect.key(command.names[0])}
    return {f"name{number}": dialect.key(name) for number, name in enumerate(command.names)}


def _read_place(dialect: Dialect, _: LookAround, result: Result) -> Found:
    found, row = dialect.found, result.rows[0] if result.rows else ()
    schema, identity = Schema.of(row[len(found) :]), row[len(found) + 2 :]
    if not any(identity):
        return Found(schema, None)
    told: dict[str, Any] = {
        what: None if value is None else str(text(value))
        for what, value in zip(found, row, strict=False)
    }
    if dialect.schema:
        told["schema"] = dialect.schema
    return Found(schema, Place(text(identity[0]), **told, clustered=dialect.adapter.clustered))


class Dialect(Values, Migrations, AbstractDialect):
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
        cls.registered = statements_of(cls)

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
        """Return the statement that asks this database for a command.

        Raises NotImplementedError if the database does not have the command.
        """
        # This is one function, because every statement passes it.
        found = self.registered.get(type(command))
        if found is None:
            raise NotImplementedError(f"{self.name} {self.unsupported[type(command)]}")
        key = (found, found.build(self, command)) if found.varies else found
        text = self.built.get(key) or found.examine(self, key)
        params: dict[str, object] = {}
        for field, write in text.fields:
            value = getattr(command, field)
            params[field] = value if write is None else write(self, value)
        if found.parameters is not None:
            params |= found.parameters(self, command)
        timeout = found.lock_timeout
        if timeout == "usual":
            timeout = self.patience
        elif timeout == "patience":
            timeout = getattr(command, timeout)
        elif callable(timeout):
            timeout = timeout(self, command)
        read = found.read if found.reads is None else partial(found.reads, self, command)
        # Query(...) would be one more call of a function in Python.
        return tuple.__new__(Query, (text.sql, params, command, timeout, text.durable, read))

    def begin(self, patience: float | None) -> tuple[Query[int], ...]:
        """Begin the row lock's own transaction."""
        return (Query("BEGIN", {}, Begin()),)

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
        self._adopt(made)

    def become(self, kind: type[Dialect]) -> None:
        """Turn into a dialect of another kind, for the same tables. Other threads see its name
        change when the rest is done."""
        made = kind(self.schema, self.prefix, self.timeouts, self.adapter)
        made.timing, made.upgraded_by = self.timing, self.upgraded_by
        made.former_place = self.place or self.former_place
        self._adopt(made)

    def _adopt(self, made: Dialect) -> None:
        """Take over what was made for other tables, or by a dialect of another kind."""
        derived = [  # statements that contain the tables' names
            name
            for name in vars(self) | vars(made)
            if isinstance(getattr(type(self), name, None), cached_property)
        ]
        for name in derived:
            vars(made).pop(name, None)
        vars(self).update(vars(made))  # in one step, so that no thread sees half of it
        self.__class__ = type(made)
        for name in derived:  # another thread may have built a former one just now
            vars(self).pop(name, None)
        self.built = {}

    @statement(LookAround, reads=_read_place)
    def look_around(self, command: LookAround) -> str:
        sql = f"SELECT {', '.join(self.found.values())}, s.* FROM {self.schema_table} AS s"
        if not command.borrowed:
            return sql
        return f"{self.newest} {self.placed(sql)}{self.locking}".lstrip()

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
    def derives(self) -> bool:
        """Whether an UPDATE may read its own table in a derived table alone."""
        return False

    @property
    def complete(self) -> str:
        """A further condition, which begins with AND: MariaDB's guard row must exist too."""
        return ""

    @property
    def in_order(self) -> str:
        """Begins a read: a node of a cluster first applies the other nodes' commits."""
        return ""

    @statement(Look, read=read_rows, parameters=_keys)
    def look(self, command: Look) -> str:
        marks = list(map(self.parameter, _keys(self, command)))
        where = f"= {marks[0]}" if len(marks) == 1 else f"IN ({', '.join(marks)})"
        return f"{self.in_order}{self._select()} WHERE lock_name {where}{self.complete}"

    @statement(ListHeld, read=read_rows)
    def held(self) -> str:
        waited_for = f"SELECT lock_name FROM {self.waiter_table} WHERE {self.lasting}"
        return f"""{self._select()}
            WHERE token IS NOT NULL OR lock_name IN ({waited_for}) ORDER BY lock_name"""

    @statement(LookQueued, read=read_look)
    def look_queued(self) -> str:
        return f"""{self.in_order}SELECT {self.columns}, {self.position_columns}
            FROM {self.lock_table} WHERE lock_name = {self.name_parameter}{self.complete}"""

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
