"""The process-wide lock: for what the keeper and the users' threads both change."""

from __future__ import annotations

import os
import threading

#: Never held for long. Reentrant, since a garbage collection, and with it anybody's code, can come
#: anywhere. Nobody else has it while the process forks.
lock = threading.RLock()
#: Notified when a renewal has ended.
settled = threading.Condition(lock)

os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
