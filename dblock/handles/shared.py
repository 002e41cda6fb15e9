"""The shared lease: many readers hold a name at a time, and no writer holds it meanwhile."""

from __future__ import annotations

from typing import NoReturn

from ..arguments import Seconds
from .lease import Lease


class SharedLease(Lease):
    """A lease that others may share, made by :meth:`Locks.shared`: the reader's side.

    The writer's side is a :class:`Lease` on the same name. The name has any number of readers at a
    time, or one writer. A waiting writer keeps out readers that come later, so it does not starve.
    Readers that have waited for a writer get in together.

    Readers that hold the name at the same time share one hold: :attr:`fence` and :attr:`token` are
    the same for all of them, and the fence is larger than the fence of every earlier writer. So
    :meth:`guard` proves, until the transaction ends, that no writer has held the lease since the
    reader began.

    dblock renews each reader's hold separately, and reports its loss separately. The name is free
    when the last reader has released it. If readers die, it is free when the longest TTL of any of
    them is over.

    A thread that holds the name as a reader cannot also become its writer, nor the other way round:
    it gets DeadlockDetected immediately, or False if it does not wait. It cannot share the name
    twice either, except with ``reentrant=True``, because a writer that waits in between would wait
    for it. You cannot detach a shared lease, and no release keeps the name.
    """

    strategy = "shared"
    _shares = True

    def __repr__(self) -> str:
        return f"<Shared{super().__repr__()[1:]}"

    def release(self, after: Seconds = 0.0) -> None:
        """End this reader's share. One round trip. The release of the last reader frees the name.

        ``after`` has to be 0: dblock cannot keep the name, because other readers may share it.

        Raises NotHeld if there is no hold to release (:class:`Lease` says whose a hold is), and
        LockLost if it was lost before. Then a writer may have held the name since.
        """
        if after:
            raise ValueError(
                f"after={after!r}: a shared lease does not keep the name, since others may have it "
                "too. Release it without after, or take the name with lease()"
            )
        super().release(after)

    def detach(self, ttl: Seconds | None = None) -> NoReturn:
        """Raise TypeError: other readers may share the hold, so it cannot be handed over."""
        raise TypeError(
            f"the shared lease on {self.name!r} cannot be detached: others may share its hold. "
            "Take another share in the other process, or take the name with lease()"
        )
