"""Locks for tests: they need no server, and the test decides what goes wrong.

>>> from dblock.testing import Faults
>>> with Faults() as faults, faults.locks.lease("report") as lease:  # doctest: +SKIP
...     faults.expire("report")
...     lease.check()  # raises LockLost

pytest has the fixtures ``dblock_faults``, ``dblock_locks`` and ``dblock_async_locks``.
"""

from __future__ import annotations

from .another import Another
from .faults import Faults

__all__ = ["Another", "Faults"]
