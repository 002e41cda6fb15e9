"""dblock's fixtures for pytest; docs/testing.md tells what they are for.

pytest imports this whenever it starts, also where nobody has use for it. So it is no part of the
package, whose import takes a while: that is imported when a test asks for a fixture.
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
    """What life does to locks, and a database of this test for them: dblock.testing.Faults."""
    from dblock.testing import Faults

    with Faults() as faults:
        yield faults


@pytest.fixture
def dblock_locks(dblock_faults: Faults) -> Locks:
    """Locks in that database, which need no server: dblock.Locks."""
    return dblock_faults.locks


@pytest.fixture
def dblock_async_locks(dblock_faults: Faults) -> AsyncLocks:
    """The same for coroutines: dblock.aio.AsyncLocks."""
    return dblock_faults.async_locks
