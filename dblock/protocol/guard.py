"""Proving a lease in the user's transaction, and keeping it provable until that ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..errors import Conflict
from ..lock_state import printable
from .commands import Guard
from .epoch import consult, ended, failed_over
from .explain import explain
from .faults import Fault, StatementError
from .inspect import expired, look_from, loss_of
from .lease import Held
from .place import check, explain_borrowed
from .steps import ExecuteInTransaction, Procedure

if TYPE_CHECKING:
    from .statements import Statements


def guard(
    dialect: Statements,
    name: str,
    token: str,
    held: Callable[[], Held],
    patience: float,
    start: float,
) -> Procedure[None]:
    """Prove the lease in the user's transaction, and keep it provable until that ends.

    ``held`` returns the present state of the hold, which may be renewed meanwhile.

    First this blocks every grant of the name. Then it reads the name from outside the transaction
    and its snapshot, to check that the lease is still ours. Both orders would pass a test; only
    this one is safe.
    """
    fence = held().fence
    if held().term.over(start):
        raise expired(name)
    proof = yield from _prove(dialect, name, token, fence, patience, start)
    unseen = not proof.given and proof.cause is None
    if unseen and (yield from check(dialect, name, patience, proof.now)):
        proof = yield from _prove(dialect, name, token, fence, patience, proof.now)
    if not proof.given and dialect.has_witness:
        try:
            witness, mended, *_ = yield from consult(dialect, 0.0, patience, proof.now)
        except StatementError as failure:
            raise explain(dialect, failure, name, harmless=True) from failure.__cause__
        loss = ended(name, fence, witness)
        if loss is not None:
            raise loss from proof.cause
        if mended and proof.cause is None:
            proof = yield from _prove(dialect, name, token, fence, patience, proof.now)
    state, reply = yield from look_from(dialect, name, patience, proof.now)
    loss = failed_over(name) if held().elsewhere(reply.server) else None
    loss = loss or loss_of(state, name, token, held(), reply.now)
    if loss is None and held().term.over(reply.now):
        loss = expired(name)
    if loss is not None:
        raise loss from proof.cause
    if not proof.given:
        why = printable(str(proof.cause or "it is in use, or newer than the snapshot"))
        raise Conflict(
            f"the lease on {name!r} is held, but this transaction cannot lock its row: {why}. "
            "Retry the whole transaction",
            name=name,
        ) from proof.cause


class _Proof(NamedTuple):
    given: bool
    now: float
    cause: BaseException | None = None


def _prove(
    dialect: Statements, name: str, token: str, fence: int, patience: float, now: float
) -> Procedure[_Proof]:
    """Block every grant of the name, in the user's transaction."""
    try:
        command = Guard(name, token, fence)
        reply = yield ExecuteInTransaction(command, within=patience)
    except StatementError as failure:
        if failure.fault not in (Fault.SERIALIZATION, Fault.BUSY):
            raise explain_borrowed(dialect, failure, name) from failure.__cause__
        return _Proof(False, now, failure.__cause__ or failure)
    return _Proof(reply.answer, reply.now)
