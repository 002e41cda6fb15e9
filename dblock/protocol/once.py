"""A call that is made once: the user's transaction records its key and its result.

The key is recorded first, and it is unique. So a second call with the same key waits in the server
until the first call's transaction has ended. Then it finds the result, or it becomes the first.
"""

from __future__ import annotations

from ..errors import InProgress, KeyReused, Unsupported
from ..lock_state import printable
from .commands import ClaimOnce, Command, FinishOnce, ForgetOnce
from .exchange import Exchange
from .faults import StatementError
from .place import IN_USE, check, in_transaction
from .retry import PAUSE
from .state import Record
from .steps import ExecuteInTransaction, Procedure, Sleep


def claim(
    exchange: Exchange, token: str, fingerprint: str | None, keep: float
) -> Procedure[str | None]:
    """Record a call, waiting until the deadline for other calls with its key.

    Return None if this call is the first, otherwise the first call's result. Raises InProgress and
    KeyReused; the transaction stays usable then.
    """
    dialect, key = exchange.dialect, exchange.name
    while True:
        left = exchange.left
        limits = [seconds for seconds in (left, dialect.longest_patience) if seconds is not None]
        chunk = min(limits, default=None)
        command = ClaimOnce(key, token, fingerprint, keep, chunk)
        try:
            undone = chunk is not None or not dialect.traits.failure_aborts
            step = _bounded(command, left, chunk, exchange.timeout)
            reply = yield from in_transaction(exchange, step, IN_USE if undone else frozenset())
        except StatementError as failure:
            exchange.now = failure.now
            if left == 0 or exchange.left == 0:
                raise _in_progress(exchange) from failure.__cause__
            # If the server does not wait, this waits instead.
            exchange.now = (yield Sleep(exchange.capped(PAUSE))).now
            continue
        record: Record | None = reply.answer
        if record is not None:
            return _judge(record, key, token, fingerprint)
        # Even a call that does not wait looks for tables that were moved.
        yield from check(exchange, patience=exchange.timeout)


def _bounded(
    command: Command[Record | None], left: float | None, chunk: float | None, timeout: float
) -> ExecuteInTransaction:
    """Return the step that records a call. With a ``chunk`` its wait in the server is bounded."""
    if chunk is None:
        return ExecuteInTransaction(command, left)
    return ExecuteInTransaction(
        command, left, chunk + timeout, keep=lambda record: record is not None
    )


def _in_progress(exchange: Exchange) -> InProgress:
    key, wait = exchange.name, exchange.wait
    within = f" within {wait:g} s" if wait else ""
    other = ", or another writer to this file," if exchange.dialect.traits.one_writer else ""
    return InProgress(
        f"another call with the idempotency key {printable(repr(key))}{other} "
        f"has not ended{within}",
        name=key,
    )


def _judge(record: Record, key: str, token: str, fingerprint: str | None) -> str | None:
    """Return the recorded result for a call; None if the record is the call's own."""
    if record.token == token:
        return None
    shown = printable(repr(key))
    if None not in (fingerprint, record.fingerprint) and fingerprint != record.fingerprint:
        raise KeyReused(
            f"the idempotency key {shown} belongs to a call with another fingerprint: "
            "give each call a key of its own",
            name=key,
        )
    if record.result is None:
        raise InProgress(
            f"a call with the idempotency key {shown} has been recorded without a result: it is "
            "under way in this transaction, or its transaction was committed before its block "
            "ended",
            name=key,
        )
    return record.result


def finish(exchange: Exchange, token: str, result: str) -> Procedure[None]:
    """Record the result of a call. Raises Unsupported if its record is gone."""
    command = FinishOnce(exchange.name, token, result)
    if not (yield from in_transaction(exchange, ExecuteInTransaction(command))).answer:
        raise gone(exchange.name)


def forget(exchange: Exchange, token: str) -> Procedure[None]:
    """Delete the record of a call."""
    command = ForgetOnce(exchange.name, token)
    yield from in_transaction(exchange, ExecuteInTransaction(command))


def gone(key: str) -> Unsupported:
    """Return the error for a call whose transaction ended before it did."""
    return Unsupported(
        f"the transaction of the call {printable(repr(key))} ended inside its block, or a "
        "savepoint from before it was rolled back: commit or roll back after the block",
        name=key,
    )
