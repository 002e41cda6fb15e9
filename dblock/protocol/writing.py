"""Writes of which the last one counts: no write arrives after a later write of the same writer.

Repeating a write has no further effect. But the server may execute a write whose reply was lost at
any later time, even after the writer's next write. So its session is ended before the next write.
"""

from __future__ import annotations

from typing import TypeVar

from ..errors import DBLockError
from .commands import Command
from .doubt import Doubt
from .exchange import Exchange
from .explain import unknown
from .faults import Fault, StatementError
from .retry import AGAIN, PAUSE
from .steps import Procedure, Reply, Sleep

T = TypeVar("T")

_NOT_LOST = AGAIN - {Fault.DISCONNECTED}


def write(
    exchange: Exchange, command: Command[T], before: Doubt, *, patience: float | None = None
) -> Procedure[Reply[T]]:
    """Write, with retries for up to ``patience`` seconds; first end the sessions of earlier writes.

    Without ``patience`` it retries for the seconds of :attr:`.Exchange.reach`.

    ``before`` has the same writer's earlier writes without a reply. Raises Unavailable if nothing
    was written, and OutcomeUnknown if the server may have executed the write, or may still do so.
    """
    name, until = exchange.name, exchange.now + (exchange.reach if patience is None else patience)
    lost: StatementError | None = None
    try:
        while True:
            try:
                yield from before.end_sessions(exchange, patience=max(0.0, until - exchange.now))
                left = max(0.0, until - exchange.now)
                return (yield from exchange.ask(command, _NOT_LOST, patience=left))
            except DBLockError as error:
                if lost is None:
                    raise
                raise unknown(lost, name) from error
            except StatementError as failure:
                first = lost is None
                if failure.fault is not Fault.DISCONNECTED:
                    raise (
                        exchange.explain(failure) if lost is None else unknown(lost, name)
                    ) from failure.__cause__
                lost = failure
            before.add(lost)
            if first:
                continue  # even without patience: the connection may have died while it was idle
            exchange.now = (yield Sleep(PAUSE)).now
            if exchange.now >= until:
                raise unknown(lost, name) from lost.__cause__
    finally:
        del lost  # its traceback has this frame, and would keep the caller's handle alive
