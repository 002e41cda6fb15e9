"""The row lock and the guard."""

from __future__ import annotations

from ..state import RowOutcome
from .command import Command, Exact, Limit, Name


class Create(Command[int]):
    """Insert the free row of a name, with the floor's fence; no failure if the row exists.

    Only a database with :attr:`~.Traits.one_writer` creates it in a ``borrowed`` transaction.
    """

    name: Name
    borrowed: bool = False


class SelectForUpdate(Command[RowOutcome]):
    """Lock a free name's row until the transaction ends.

    ``patience`` is how many seconds the server may wait for other transactions: 0 not at all, None
    without a limit. In a ``borrowed`` transaction no setting outlives the statement. There 0 is
    only for :attr:`~.Traits.skips_locked`, and the reply does not say why the row was not
    locked.
    """

    word = "lock_row"
    name: Exact
    patience: Limit
    borrowed: bool


class Guard(Command[bool]):
    """Block every grant of the name until the user's transaction ends; renewals still pass.

    True when no later hold has been granted. The statement does not wait: a session that has the
    row locked is taking the name.
    """

    name: Exact
    token: str
    fence: int
