"""A statement in a driver's own parameter style, and its result.

A dialect makes it for a command; the procedures know the command and its answer alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ..protocol.commands import Command

R = TypeVar("R")

#: Between two statements of one text, where a database needs several for a command. No parameter's
#: value is in the text.
THEN = ";\n-- then\n"
#: Begins the last of them if it has to run after a failure too: it restores a setting of a user's
#: session.
FINALLY = "/* finally */ "


class Result(NamedTuple):
    """What the driver returns for a statement: its rows, and the number of rows that it matched."""

    rows: Sequence[Sequence[Any]]
    matched: int


def count(result: Result) -> int:
    """Read how many rows a statement matched."""
    return result.matched


def any_row(result: Result) -> bool:
    """Read whether the result has a row."""
    return bool(result.rows)


def all_rows(result: Result) -> Sequence[Sequence[Any]]:
    """Read the rows themselves."""
    return result.rows


def _as_it_is(result: Result) -> Result:
    return result


class Query(NamedTuple, Generic[R]):
    """A statement in the driver's own parameter style.

    ``command`` is what the statement asks for; None for statements outside of the procedures, which
    prepare a connection or use the user's own tables. ``patience`` is how many seconds the server
    may wait for other transactions' locks; None for the session's own limit. With ``durable`` the
    reply comes after the changes are on disk, or as durable as the server's commits are by default.
    Without it a crash may undo the changes, except a grant, which is always durable. ``read`` reads
    the answer from the result.
    """

    sql: str
    params: Mapping[str, Any] | tuple[Any, ...]
    command: Command[Any] | None = None
    patience: float | None = None
    durable: bool = True
    read: Callable[[Result], R] = count  # type: ignore[assignment] # fits Query[int] alone: tested

    @property
    def kind(self) -> str:
        """The word for its command: ``"grant"``, ``"lock_row"``; ``"other"`` without a command."""
        return "other" if self.command is None else self.command.word

    def steps(self) -> tuple[Query[Result], ...]:
        """Return the statements that its text consists of, each with the plain result."""
        any_answer: Query[Any] = self
        return tuple(any_answer._replace(sql=sql, read=_as_it_is) for sql in self.sql.split(THEN))

    def __repr__(self) -> str:
        return f"<Query {self.sql!r}>"  # a token may be among the parameters, and aiosqlite logs it
