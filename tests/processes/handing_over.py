"""What the other processes of the handover's tests do."""

from __future__ import annotations

from dblock import Locks
from tests.processes.workers import Say, Wait


def hand_over(say: Say, wait: Wait, url: str, ttl: float) -> None:
    """Take a lease, detach it for so long, and say with what another goes on."""
    with Locks(url) as locks, locks.lease("report") as lease:
        say((lease.fence, lease.detach(ttl)))
        wait()


def go_on(say: Say, wait: Wait, url: str, text: str, ttl: float) -> None:
    """Go on with a hold until told to end."""
    with Locks(url) as locks, locks.attach(text, ttl=ttl) as lease:
        say(lease.fence)
        wait()
        lease.check()
    say("released")
