"""The holder's clock: monotonic, and running on while the machine is suspended.

A lease expires on the database's clock whether this machine sleeps or not. ``time.monotonic`` stops
during a suspend, on Linux and on macOS: with it a holder would still count on an expired lease
after it wakes up.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

if sys.platform == "darwin":
    _CLOCK = time.CLOCK_MONOTONIC  # on macOS this one, unlike time.monotonic, counts sleep
else:
    _CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: Returns the seconds since an unspecified moment; only differences mean anything. The function is
#: written in C, because dblock calls it about twelve times for each lease.
now: Callable[[], float] = partial(time.clock_gettime, _CLOCK)
