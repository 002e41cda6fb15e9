"""How a dialect registers its statement for a command.

A statement is spelled in one place. The command in :mod:`dblock.protocol.commands` has the fields,
the type of the reply, and the contract as its docstring. A dialect has the SQL, and beside it how
the reply is read and how long the server may wait. :meth:`~.dialect.Dialect.query` joins the two.

Most statements have one text for a set of tables. Then the method takes ``self`` alone, and runs
once for each dialect object, and again after :meth:`~.dialect.Dialect.settle`::

    @statement(Take, read=read_grant, lock_timeout=TURN)
    def take(self) -> str:
        return f"UPDATE {self.lock_table} SET token = %(token)s WHERE lock_name = %(name)s ..."

On a dialect object the name of such a method is the text: ``self.take`` is a string, and so is
``super().take`` in an override. If the text depends on values, the method takes the command too;
it chooses among texts that a ``cached_property`` builds once, where there are few::

    @statement(ListRuns, read=_runs)
    def runs(self, command: ListRuns) -> str: ...

*Parameters* are the command's fields. A parameter in the text has the value of the field with its
name; a field that the text does not name is not sent. The field's type says how the database writes
it: ``Name`` by :meth:`.Values.key`, ``Duration`` by :meth:`.Values.shift`, ``Exact`` by
:meth:`.Values.exact`, ``Limit`` by :meth:`.Values.limit`. Every other type is sent as it is.
``parameters`` is a function of the dialect and the command; it returns parameters that are no
fields, or that replace fields.

*The answer* is the number of rows; else ``read`` reads it, as in :class:`.Query`. ``reads`` is a
function of the dialect, the command and the result, for a reading that depends on these.

*The lock timeout* is the dialect's :attr:`.Values.patience`. ``lock_timeout`` replaces it: seconds,
None for the session's own limit, ``"patience"`` for the command's field, or a function of the
dialect and the command.

*Durability* needs no word: a statement whose text contains ``dialect.lazy`` is not durable.

If two classes of a dialect register the same command, the class that comes first in the order of
inheritance counts. A dialect lists in ``unsupported`` the commands that it does not have.

To add a statement:

1. Write its command in the file of its subject in :mod:`dblock.protocol.commands`, with the
   contract as the docstring, and the fields that the text or the lock timeout needs. Export it.
2. Register it in each dialect. Where a dialect has no such statement, add the command and the
   reason to its ``unsupported``. A procedure yields ``Execute(Command(...))``.
3. Add a line to COMMANDS in ``tests/protocol/test_commands.py``, and a scene to
   ``tests/protocol/test_traces.py``. Say in ``dblock/testing/wire.py`` what a test may lose of it.
4. ``python -m tests.golden`` writes the golden pages. Read the SQL there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from ..protocol.commands import Command, Encoding
from .query import Result, count
from .values import Values

R = TypeVar("R")

# Texts that a dialect keeps. Most are few; but MariaDB's row lock has its limit in its text.
_KEPT = 256

#: The method of a dialect that writes a field of this encoding.
_WRITERS = {
    Encoding.NAME: "key",
    Encoding.DURATION: "shift",
    Encoding.EXACT: "exact",
    Encoding.LIMIT: "limit",
}

#: Functions of the dialect and the command.
Parameters = Callable[[Any, Any], Mapping[str, object]]
LockTimeout = Callable[[Any, Any], float | None]


class Text(NamedTuple):
    """A statement's text on one dialect object, and what follows from the text."""

    sql: str
    #: The fields that are parameters of the text, each with its writer if it has one.
    fields: tuple[tuple[str, Callable[[Any, Any], object] | None], ...]
    durable: bool


class Statement(Generic[R]):
    """A registered statement: on a dialect object it is a text."""

    #: Whether the text depends on the command's values.
    varies = False

    def __init__(self, build: Callable[..., str], asked: Registering[R]) -> None:
        self.build = build
        self.command = asked.command
        self.read, self.reads = asked.read, asked.reads
        self.lock_timeout, self.parameters = asked.lock_timeout, asked.parameters
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, dialect: None, owner: type) -> Self: ...
    @overload
    def __get__(self, dialect: Any, owner: type) -> str: ...
    def __get__(self, dialect: Any, owner: type) -> Self | str:
        if dialect is None:
            return self
        built: Mapping[object, Text] = dialect.built
        return (built.get(self) or self.examine(dialect, self)).sql

    def examine(self, dialect: Any, key: Any) -> Text:
        """Build the text, or take the text that is in the ``key``; keep it on the dialect."""
        built = dialect.built  # of these tables: settle() gives the dialect another
        sql = key[1] if self.varies else self.build(dialect)
        named = set(re.findall(re.escape(dialect.name_parameter).replace("name", r"(\w+)"), sql))
        writers = _writers(dialect.__class__, self.command)
        fields = tuple((field, write) for field, write in writers.items() if field in named)
        durable = not dialect.lazy or dialect.lazy not in sql
        if len(built) >= _KEPT:
            built.clear()
        text: Text = built.setdefault(key, Text(sql, fields, durable))
        return text


class Variants(Statement[R]):
    """A registered statement with several texts: on a dialect object it is a function."""

    varies = True

    @overload  # type: ignore[override]
    def __get__(self, dialect: None, owner: type) -> Self: ...
    @overload
    def __get__(self, dialect: Any, owner: type) -> Callable[[Command[R]], str]: ...
    def __get__(self, dialect: Any, owner: type) -> Self | Callable[[Command[R]], str]:
        return self if dialect is None else partial(self.build, dialect)


@dataclass
class Registering(Generic[R]):
    """What a dialect says beside the SQL; as a decorator it registers the method below."""

    command: type[Command[R]]
    read: Callable[[Result], R]
    reads: Callable[[Any, Any, Result], R] | None
    lock_timeout: float | Literal["usual", "patience"] | LockTimeout | None
    parameters: Parameters | None

    @overload
    def __call__(self, build: Callable[[Any], str]) -> Statement[R]: ...
    @overload
    def __call__(self, build: Callable[[Any, Any], str]) -> Variants[R]: ...
    def __call__(self, build: Callable[..., str]) -> Statement[R]:
        varies = build.__code__.co_argcount == 2
        return (Variants if varies else Statement)(build, self)


class Options(TypedDict, total=False):
    """What any statement may say."""

    lock_timeout: float | Literal["usual", "patience"] | LockTimeout | None
    parameters: Parameters


@overload
def statement(command: type[Command[int]], **options: Unpack[Options]) -> Registering[int]: ...
@overload
def statement(
    command: type[Command[R]], *, read: Callable[[Result], R], **options: Unpack[Options]
) -> Registering[R]: ...
@overload
def statement(
    command: type[Command[R]], *, reads: Callable[[Any, Any, Result], R], **options: Unpack[Options]
) -> Registering[R]: ...
def statement(
    command: type[Command[Any]],
    *,
    read: Callable[[Result], Any] = count,
    reads: Callable[[Any, Any, Result], Any] | None = None,
    **options: Unpack[Options],
) -> Registering[Any]:
    """Register the method below as the statement for a command."""
    timeout = options.get("lock_timeout", "usual")
    return Registering(command, read, reads, timeout, options.get("parameters"))


def statements_of(dialect: type) -> dict[type[Command[Any]], Statement[Any]]:
    """Return the statements of a dialect's class, by their commands."""
    return {
        found.command: found
        for base in reversed(dialect.__mro__)
        for found in vars(base).values()
        if isinstance(found, Statement)
    }


@cache
def _writers(
    dialect: type, command: type[Command[Any]]
) -> Mapping[str, Callable[[Any, Any], object] | None]:
    """Return how the dialect writes each field of a command; None if the field is sent as it is."""
    return {field: _writer(dialect, command.encodings.get(field)) for field in command._fields}


def _writer(dialect: type, encoding: Encoding | None) -> Callable[[Any, Any], object] | None:
    """Return the dialect's method that writes a field; None if it does nothing."""
    if encoding is None:
        return None
    writes = _WRITERS[encoding]
    method: Callable[[Any, Any], object] = getattr(dialect, writes)
    return None if method is getattr(Values, writes) else method
