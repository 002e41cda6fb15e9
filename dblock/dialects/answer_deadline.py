"""A deadline for an answer in the user's transaction, for drivers without a timeout of their own.

Such a driver would wait forever for a peer that acknowledges and never answers: a proxy, or a
stopped server. So dblock ends the connection under the driver, which then raises its own error of a
broken connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from ..protocol.faults import StatementError


class Timer(Protocol):
    def cancel(self) -> None: ...


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


@contextlib.contextmanager
def ended_after(
    seconds: float | None,
    end: Callable[[], object],
    start: Callable[[float, Callable[[], None]], Timer],
) -> Iterator[None]:
    """Call ``end`` if the block takes longer; its StatementError is then marked as timed out.

    ``start`` starts a timer. Without ``seconds`` there is no limit.
    """
    if seconds is None:
        yield
        return
    over: list[bool] = []

    def give_up() -> None:
        over.append(True)
        end()

    timer = start(seconds, give_up)
    try:
        yield
    except StatementError as failure:
        failure.timed_out = failure.timed_out or bool(over)
        raise
    finally:
        timer.cancel()


def in_loop(seconds: float, do: Callable[[], None]) -> Timer:
    """Start a timer of the running event loop."""
    import asyncio  # here, because a process without an event loop need not import it

    return asyncio.get_running_loop().call_later(seconds, do)


@contextlib.contextmanager
def shut_down_after(seconds: float | None, connection: HasDescriptor) -> Iterator[None]:
    """Shut a connection's socket down if the block takes longer: a call into C is waiting there."""
    if seconds is None:
        yield
        return
    # A copy of the descriptor: the driver may close its own, and another file get the same number.
    with socket.socket(fileno=os.dup(connection.fileno())) as copy:

        def shut_down() -> None:
            with contextlib.suppress(OSError):  # the connection has just ended by itself
                copy.shutdown(socket.SHUT_RDWR)

        with ended_after(seconds, shut_down, _in_thread):
            yield


def _in_thread(seconds: float, do: Callable[[], None]) -> Timer:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    # No thread starts at the interpreter's end. Before 3.12 Python would wait forever for it.
    if not sys.is_finalizing():
        timer.start()
    return timer
