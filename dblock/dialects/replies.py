"""How the replies are read that several statements have, or several databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..protocol.state import Granted, LockRow, Queued, QueuePosition, Record, RowOutcome
from .query import Result, any_row
from .values import text, utc

# The number of :attr:`.Dialect.columns`.
_COLUMNS = 8


def read_grant(result: Result) -> Granted | None:
    """Read the fence and the seconds to the expiry from the first columns; None without a grant."""
    if not result.rows or result.rows[0][0] is None:
        return None
    fence, remaining, *_ = result.rows[0]
    return Granted(fence, float(remaining))


def read_join(result: Result) -> Granted | Queued | None:
    """Read the reply to a join: three columns of a grant, as in :func:`read_grant`, then the name's
    row and the ticket's position, if it is in the queue."""
    return read_grant(result) or read_joined(result)


def read_joined(result: Result) -> Queued | None:
    """Read the reply to a join that is known not to be a grant."""
    queued = read_queued(result.rows[0][3:]) if result.rows else None
    return None if queued is None or queued.position.ahead is None else queued


def read_fence(result: Result) -> int:
    """Read the reply's only value, a fence."""
    return int(result.rows[0][0])


def read_attached(result: Result) -> int | None:
    """Read the fence of the hold that was attached, from the first column."""
    return int(result.rows[0][0]) if result.rows else None


def read_renewed(result: Result) -> dict[str, int | None]:
    """Read the tokens of the holds that were renewed, and their fences."""
    return {row[0]: row[1] for row in result.rows}


def read_record(result: Result) -> Record | None:
    """Read the record of a call: its first columns are the token, the fingerprint, the result."""
    if not result.rows or result.rows[0][0] is None:
        return None
    token, *columns = result.rows[0][:3]
    return Record(text(token), *(None if said is None else text(said) for said in columns))


def read_row_lock(result: Result) -> RowOutcome:
    """Read whether the row was locked: then the reply has it, or the statement wrote it."""
    return RowOutcome(any_row(result) or result.matched > 0)


def read_rows(result: Result) -> list[LockRow]:
    """Read the rows of names."""
    return list(map(_row, result.rows))


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


def read_look(result: Result) -> Queued | None:
    """Read a name's row, and behind it a ticket's position; None without the row."""
    return read_queued(result.rows[0]) if result.rows else None


def read_queued(columns: Sequence[Any]) -> Queued:
    """Read a name's row, and behind it a ticket's position."""
    ahead, free, *clock = columns[_COLUMNS:]
    position = QueuePosition(None if ahead is None else int(ahead), bool(free), *clock)
    return Queued(_row(columns[:_COLUMNS]), position)
