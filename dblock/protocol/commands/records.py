"""Records in the user's transaction: of changes, of fences, of calls that are made once."""

from __future__ import annotations

from ..state import Record
from .command import Command, Exact


class Apply(Command[int]):
    """Record a key, in the user's transaction; it matches no row if the key is recorded."""

    key: Exact


class Unapply(Command[int]):
    """Delete a key that this transaction has recorded."""

    key: Exact


class Gate(Command[int]):
    """Lock a name's row of the user's ``table``, in the user's transaction; raise its fence to this
    one, and return it: the largest fence that has passed."""

    table: str
    name: Exact
    fence: int


class ClaimOnce(Command[Record | None]):
    """Record a call in the user's transaction, unless the key has a record that has not expired;
    return the key's record. It is this call's own if it has this call's token.

    The statement waits for another transaction's uncommitted record, up to ``lock_timeout``
    seconds: 0 not at all, None without a limit. None if another record appeared meanwhile: the
    caller asks again.
    """

    key: Exact
    token: str
    fingerprint: str | None
    keep: float
    lock_timeout: float | None


class FinishOnce(Command[int]):
    """Record the result of a call that this transaction has recorded; no row when its record is
    gone."""

    key: Exact
    token: str
    result: Exact


class ForgetOnce(Command[int]):
    """Delete the record of a call that this transaction has recorded."""

    key: Exact
    token: str
