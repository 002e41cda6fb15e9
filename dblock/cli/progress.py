"""The messages of ``dblock run`` about its lock: with ``-v``, and on a terminal while it waits."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import DBLockError
from ..events import Kind, LockEvent, listen
from ..protocol.slots import is_slot
from .output import complain

if TYPE_CHECKING:
    from ..handles.held import HeldLease
    from ..locks import Locks
    from ..quorum.quorum import Quorum

# Seconds. A shorter wait is not worth a line.
A_MOMENT = 0.5


class Progress:
    """Prints what happens to the lock ``name``, or to a slot of it, if the user wants to know."""

    def __init__(self, name: str, verbose: bool, *, slots: bool = False) -> None:
        self.name = name
        self.verbose = verbose
        self.slots = slots
        self._released = False
        self._lock = threading.Lock()

    def say(self, what: str) -> None:
        if self.verbose:
            complain(what)

    def acquired(self, lease: HeldLease, after: float) -> None:
        self.say(f"acquired {lease.name!r}, fence {lease.fence}, after {after:.1f} s")

    @contextlib.contextmanager
    def events(self) -> Iterator[None]:
        """Print renewals and the release."""
        end = listen(self._tell) if self.verbose else None
        try:
            yield
        finally:
            if end is not None:
                end()

    def _tell(self, event: LockEvent) -> None:
        name = event.name
        # A caller that takes a slot may hold the semaphore's own name for a moment: the turnstile.
        if not (is_slot(name, self.name) if self.slots else name == self.name):
            return
        with self._lock:
            if self._released:  # a late event from the keeper's thread
                return
            self._released = event.kind is Kind.RELEASED
            if event.kind is Kind.RENEWED:
                self.say(f"renewed {name!r}")
            elif event.kind is Kind.MISSED:
                self.say(f"could not renew {name!r}, trying again: {event.error}")
            elif event.kind is Kind.RELEASED:
                self.say(f"released {name!r}, held for {event.seconds:.1f} s")

    @contextlib.contextmanager
    def waiting(self, locks: Locks | Quorum) -> Iterator[None]:
        """Print the lock's holder once, or that no slot is free, if the wait takes a while."""
        if not (self.verbose or sys.stderr.isatty()):
            yield
            return
        over = threading.Event()

        def tell() -> None:
            if over.wait(A_MOMENT):
                return
            if self.slots:
                complain(f"waiting for a slot of {self.name!r}: all are taken")
                return
            with contextlib.suppress(DBLockError, ValueError):  # not reached, or closed meanwhile
                state = locks.show(self.name)
                if not over.is_set() and state.status not in ("free", "expired"):
                    complain(f"waiting for {self.name!r}, {state.describe()}")

        threading.Thread(target=tell, name="dblock waiting", daemon=True).start()
        try:
            yield
        finally:
            over.set()
