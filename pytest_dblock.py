"""dblock's fixtures for pytest; see docs/testing.md.

pytest imports this file whenever it starts, and importing the package takes a while. So this file
is outside of the package, and a fixture imports the package when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dblock import Locks
    from dblock.aio import AsyncLocks
    from dblock.testing import Faults


@pytest.fixture
def dblock_faults() -> Iterator[Faults]:
    """Faults for the locks of this test, and a database for them: dblock.testing.Faults."""
    from dblock.testing import Faults

    with Faults() as faults:
        yield faults


@pytest.fixture
def dblock_locks(dblock_faults: Faults) -> Locks:
    """Locks in the database of this test; they need no server: dblock.Locks."""
    return dblock_faults.locks


@pytest.fixture
def dblock_async_locks(dblock_faults: Faults) -> AsyncLocks:
    """The same for coroutines: dblock.aio.AsyncLocks."""
    return dblock_faults.async_locks
