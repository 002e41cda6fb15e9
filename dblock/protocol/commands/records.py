"""Records in the user's transaction: of changes, of fences, of calls that are made once."""

from __future__ import annotations

from ..state import Record
from .command import Command, Name


class Apply(Command[int]):
    """Record a key, in the user's transaction, unless it is recorded."""

    key: str


class Unapply(Command[int]):
    """Delete a key that this transaction has recorded."""

    key: str


class Gate(Command[int]):
    """Raise the largest fence in a user's own table, in the user's transaction."""

    name: Name
    fence: int


class ClaimOnce(Command[Record | None]):
    """Record a call, in the user's transaction, unless it is recorded; read the record."""

    key: str
    token: str
    fingerprint: str | None
    keep: float


class FinishOnce(Command[int]):
    """Record the result of a call that this transaction has recorded."""

    key: str
    token: str


class ForgetOnce(Command[int]):
    """Delete the record of a call that this transaction has recorded."""

    key: str
    token: str
