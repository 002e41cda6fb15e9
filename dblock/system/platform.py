"""Functions that some operating systems lack: fork, poll(2), and blocking signals in a thread."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from functools import partial
from math import ceil


def at_fork(**functions: Callable[[], object]) -> None:
    """Call functions around each fork, as :func:`os.register_at_fork` does, if the OS has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


def block_signals() -> Callable[[], object]:
    """Block all signals in this thread, if the OS can; return a function that ends that."""
    if not hasattr(signal, "pthread_sigmask"):
        return lambda: None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)


def poller(descriptor: int) -> Callable[..., bool]:
    """Return a function that waits until a descriptor can be read; with ``writing``, also written.

    The function takes the seconds to wait, and returns whether the descriptor is ready. It accepts
    ``waits`` as :class:`.Send` does; other runtimes use that argument.

    poll(2) takes any descriptor; select(2), on POSIX, only descriptors below 1024.
    """
    if not hasattr(select, "poll"):
        return partial(_select, descriptor)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)

    def ready(seconds: float, *, writing: bool = False, waits: bool = False) -> bool:
        if not writing:
            return bool(poll.poll(ceil(seconds * 1000)))
        poll.modify(descriptor, select.POLLIN | select.POLLOUT)
        try:
            return bool(poll.poll(ceil(seconds * 1000)))
        finally:
            poll.modify(descriptor, select.POLLIN)

    return ready


def _select(descriptor: int, seconds: float, *, writing: bool = False, waits: bool = False) -> bool:
    return any(select.select([descriptor], [descriptor] if writing else [], [], max(0.0, seconds)))
