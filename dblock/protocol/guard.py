"""Proving a lease in the user's transaction, and keeping it provable until the transaction ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import Conflict
from ..lock_state import printable
from .commands import Guard
from .epoch import consult, ended, failed_over
from .exchange import Exchange
from .faults import Fault, StatementError
from .inspect import expired, look_from, loss_of
from .lease import Held
from .place import check, in_transaction
from .steps import ExecuteInTransaction, Procedure


def guard(exchange: Exchange, token: str, held: Callable[[], Held]) -> Procedure[None]:
    """Prove the lease in the user's transaction, and keep it provable until it ends.

    ``held`` returns the present state of the hold, which may be renewed meanwhile.

    First this blocks every grant of the name. Then it reads the name from outside the transaction
    and its snapshot, to check that the lease is still ours. Both orders would pass a test; only
    this one is safe.
    """
    name, fence = exchange.name, held().fence
    if held().term.over(exchange.now):
        raise expired(name)
    command = Guard(name, token, fence)
    proof = yield from _prove(exchange, command)
    unseen = not proof.given and proof.cause is None
    if unseen and (yield from check(exchange)):
        proof = yield from _prove(exchange, command)
    if not proof.given and exchange.dialect.traits.has_witness:
        witness, mended, _ = yield from consult(exchange)
        loss = ended(name, fence, witness)
        if loss is not None:
            raise loss from proof.cause
        if mended and proof.cause is None:
            proof = yield from _prove(exchange, command)
    state, reply = yield from look_from(exchange)
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


_REFUSED = frozenset({Fault.SERIALIZATION, Fault.BUSY})


class _Proof(NamedTuple):
    given: bool
    cause: BaseException | None = None


def _prove(exchange: Exchange, command: Guard) -> Procedure[_Proof]:
    """Block every grant of the name, in the user's transaction."""
    step = ExecuteInTransaction(command, within=exchange.timeout)
    try:
        reply = yield from in_transaction(exchange, step, _REFUSED)
    except StatementError as failure:
        return _Proof(False, failure.__cause__ or failure)
    return _Proof(reply.answer)
