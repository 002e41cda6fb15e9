"""The shared lease: many readers hold a name at a time, and no writer holds it meanwhile."""

from __future__ import annotations

from .lease import TakeableLease


class SharedLease(TakeableLease):
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
    _kind = "SharedLease"
    _shares = True
