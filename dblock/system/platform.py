"""What some operating systems do not have: forks, poll(2), and signals that a thread can block."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from functools import partial
from math import ceil


def at_fork(**functions: Callable[[], object]) -> None:
    """Call functions around each fork, as :func:`os.register_at_fork` says, if there can be one."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


def block_signals() -> Callable[[], object]:
    """Let this thread get no signal, where signals come to threads; return what ends that."""
    if not hasattr(signal, "pthread_sigmask"):
        return lambda: None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)


def poller(descriptor: int) -> Callable[..., bool]:
    """Return a function that waits until a descriptor can be read, or ``writing`` also written to.

    It waits for as many seconds as it is given, and tells whether the descriptor can be used. It
    takes ``waits`` as :class:`.Send` does, for runtimes to which that makes a difference.

    poll(2) takes descriptors of any number; select(2), on POSIX, only those below 1024.
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
