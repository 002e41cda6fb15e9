"""A call that is made once: the user's transaction records its key and its result.

The key is recorded first, and it is unique. So a second call with the same key waits in the server
until the first call's transaction has ended. Then it finds the result, or it becomes the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InProgress, KeyReused, Unsupported
from ..lock_state import printable
from .commands import ClaimOnce, Command, FinishOnce, ForgetOnce
from .deadline import Deadline
from .faults import Fault, StatementError
from .place import check, explain_borrowed
from .retry import PAUSE
from .state import Record
from .steps import ExecuteInTransaction, Procedure, Reply, Sleep

if TYPE_CHECKING:
    from .statements import Statements


def claim(
    dialect: Statements,
    key: str,
    token: str,
    fingerprint: str | None,
    keep: float,
    *,
    wait: float | None,
    patience: float,
    start: float,
) -> Procedure[str | None]:
    """Record a call, waiting up to ``wait`` seconds for other calls with its key.

    Return None if this call is the first, otherwise the first call's result. Raises InProgress and
    KeyReused; the transaction stays usable then.
    """
    deadline = Deadline(start, wait, patience, start)
    while True:
        left = None if deadline.left is None else max(0.0, deadline.left)
        limits = [seconds for seconds in (left, dialect.longest_patience) if seconds is not None]
        chunk = min(limits, default=None)
        command = ClaimOnce(key, token, fingerprint, keep, chunk)
        try:
            reply = yield _bounded(command, left, chunk, deadline.timeout)
        except StatementError as failure:
            undone = chunk is not None or not dialect.failure_aborts
            if failure.fault not in (Fault.BUSY, Fault.CANCELED) or not undone:
                raise explain_borrowed(dialect, failure, key) from failure.__cause__
            if left == 0:
                raise _in_progress(dialect, key, wait) from failure.__cause__
            # If the server does not wait, this waits instead.
            deadline.now = (yield Sleep(deadline.within(PAUSE))).now
            continue
        deadline.now = reply.now
        record = reply.answer
        if record is not None:
            return _judge(record, key, token, fingerprint)
        yield from check(dialect, key, deadline.timeout, deadline.now)


def _bounded(
    command: Command[Record | None], left: float | None, chunk: float | None, timeout: float
) -> ExecuteInTransaction:
    """Return the step that records a call. With a ``chunk`` its wait in the server is bounded."""
    if chunk is None:
        return ExecuteInTransaction(command, left)
    return ExecuteInTransaction(
        command, left, chunk + timeout, keep=lambda record: record is not None
    )


def _in_progress(dialect: Statements, key: str, wait: float | None) -> InProgress:
    within = f" within {wait:g} s" if wait else ""
    other = ", or another writer to this file," if dialect.one_writer else ""
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


def finish(dialect: Statements, key: str, token: str, result: str) -> Procedure[None]:
    """Record the result of a call. Raises Unsupported if its record is gone."""
    if not (yield from _change(dialect, FinishOnce(key, token, result), key)):
        raise gone(key)


def forget(dialect: Statements, key: str, token: str) -> Procedure[None]:
    """Delete the record of a call."""
    yield from _change(dialect, ForgetOnce(key, token), key)


def _change(dialect: Statements, command: Command[int], key: str) -> Procedure[int]:
    try:
        reply: Reply[int] = yield ExecuteInTransaction(command)
    except StatementError as failure:
        raise explain_borrowed(dialect, failure, key) from failure.__cause__
    return reply.answer


def gone(key: str) -> Unsupported:
    """Return the error for a call whose transaction ended before it did."""
    return Unsupported(
        f"the transaction of the call {printable(repr(key))} ended inside its block, or a "
        "savepoint from before it was rolled back: commit or roll back after the block",
        name=key,
    )
