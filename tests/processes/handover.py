"""The processes of a handover: one detaches a hold, another attaches it."""

from __future__ import annotations

from dblock import Locks
from tests.processes.workers import Say, Wait


def detach(say: Say, wait: Wait, url: str, ttl: float) -> None:
    """Take a lease, detach it with this TTL, and say its fence and its text."""
    with Locks(url) as locks, locks.lease("report") as lease:
        say((lease.fence, lease.detach(ttl)))
        wait()


def attach(say: Say, wait: Wait, url: str, text: str, ttl: float) -> None:
    """Attach a hold, and release it at the next message."""
    with Locks(url) as locks, locks.attach(text, ttl=ttl) as lease:
        say(lease.fence)
        wait()
        lease.check()
    say("released")
