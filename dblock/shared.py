"""The shared lease: many hold a name at a time, and nobody who takes it for himself does."""

from __future__ import annotations

from typing import NoReturn

from .arguments import Seconds
from .lease import Lease


class SharedLease(Lease):
    """A lease that others may share, made by :meth:`Locks.shared`: the reader's side.

    The writer's side is a :class:`Lease` on the same name. Any number of readers hold the name at a
    time, or one writer. A writer that waits keeps out readers that come later, so it is not
    overtaken without end; readers that waited for a writer come in together.

    Readers that hold the name at a time share one hold: :attr:`fence` and :attr:`token` are the
    same for all of them, and the fence is larger than that of every writer before. So
    :meth:`guard` proves that nobody has written under the lease since the reader began, until the
    transaction ends.

    Each reader is renewed, lost and told of its loss by itself. The name is free when the last one
    has released it. If readers die, it is free when the longest TTL of any of them is over.

    A thread that holds the name shared cannot take it for itself as well, nor the other way round:
    it gets DeadlockDetected at once, or False if it does not wait. It cannot share it twice either,
    unless with ``reentrant=True``: a writer that waits in between would wait for it. A shared lease
    cannot be detached, and no release keeps the name.
    """

    strategy = "shared"
    _shares = True

    def __repr__(self) -> str:
        return f"<Shared{super().__repr__()[1:]}"

    def release(self, after: Seconds = 0.0) -> None:
        """Share the name no longer. One round trip. The last one who does so frees it.

        ``after`` is 0: the name cannot be kept, since others may share it.

        Raises NotHeld if there is no hold to release (:class:`Lease` says whose a hold is), and
        LockLost if it was lost before. Then somebody may have written meanwhile.
        """
        if after:
            raise ValueError(
                f"after={after!r}: a shared lease does not keep the name, since others may have it "
                "too. Release it without after, or take the name with lease()"
            )
        super().release(after)

    def detach(self, ttl: Seconds | None = None) -> NoReturn:
        """Raise TypeError: only who holds a name alone can hand it over."""
        raise TypeError(
            f"the shared lease on {self.name!r} cannot be detached: others may share its hold. "
            "Take another share in the other process, or take the name with lease()"
        )
