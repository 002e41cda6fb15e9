"""The holder's clock: monotonic, and running on while the machine is suspended.

A lease runs out on the database's clock whether this machine sleeps or not. ``time.monotonic``
stops in a suspend, on Linux and on macOS; a holder that went by it would wake up believing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

if sys.platform == "darwin":
    _CLOCK = time.CLOCK_MONOTONIC  # which there, unlike time.monotonic, counts sleep
else:
    _CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: Returns seconds since some moment in the past, for comparing with each other only. It is C: asked
#: a dozen times for each lease.
now: Callable[[], float] = partial(time.clock_gettime, _CLOCK)
