"""Leases whose history is written down: each operation before it is sent and after its outcome."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

from dblock import (
    Election,
    Leadership,
    Lease,
    LockLost,
    NotAcquired,
    OutcomeUnknown,
    QuorumLease,
    Timeouts,
    Unavailable,
)
from dblock.protocol.term import margin

from .history import Operation, Recorder, now

TIMEOUTS = Timeouts(connect=1, query=1, socket=2)


def begin(recorder: Recorder, lease: Lease | QuorumLease, **detail: Any) -> Operation:
    """Write down that a lease is about to be asked for."""
    return recorder.begin("acquire", name=lease.name, ttl=lease.ttl, wait=lease.wait, **detail)


def got(
    recorder: Recorder, operation: Operation, lease: Lease | QuorumLease | Leadership
) -> HeldLease:
    """Write down that it was granted."""
    at, fence, left = now(), lease.fence, lease.remaining
    detail = {"fence": fence, "deadline": at + left}
    if left > 0:
        detail["began"] = at + left - (lease.ttl - margin(lease.ttl))
    operation.tell("ok", at, **detail)
    return HeldLease(recorder, lease, operation.op)


def acquire(recorder: Recorder, lease: Lease | QuorumLease, **detail: Any) -> HeldLease | None:
    """Acquire it, as its ``wait`` says."""
    operation = begin(recorder, lease, **detail)
    with outcome(operation, nothing_changed=True):
        if lease.acquire():
            return got(recorder, operation, lease)
        operation.tell("failed", error="NotAcquired")
    return None


def campaign(recorder: Recorder, election: Election, wait: float) -> HeldLease | None:
    """Campaign for a term, which renews itself."""
    operation = recorder.begin(
        "acquire", name=election.name, ttl=election.ttl, wait=wait, renewing=True
    )
    with outcome(operation, nothing_changed=True):
        try:
            return got(recorder, operation, election.campaign(wait))
        except NotAcquired:
            operation.tell("failed", error="NotAcquired")
    return None


class HeldLease:
    """One hold; ``number`` is that of the operation that acquired it."""

    def __init__(
        self, recorder: Recorder, lease: Lease | QuorumLease | Leadership, number: int
    ) -> None:
        self._recorder, self.lease = recorder, lease
        self.name, self.fence = lease.name, lease.fence
        self._number = number

    def begin(self, kind: str, **detail: Any) -> Operation:
        return self._recorder.begin(
            kind, name=self.name, hold=self._number, fence=self.fence, **detail
        )

    def look(self) -> bool:
        """Write down whether its holder believes in it, and until when."""
        operation = self.begin("inside")
        at, believed = now(), False
        with outcome(operation):
            self.lease.check()
            believed = self.lease.held
            deadline = at + self.lease.remaining
            step = "ok" if believed else "failed"
            operation.tell(step, at, deadline=deadline)
        return believed

    def renew(self) -> None:
        operation = self.begin("renew")
        with outcome(operation):
            self.lease.renew()
            at = now()
            operation.tell("ok", at, deadline=at + self.lease.remaining)

    def release(self) -> bool:
        """Give it back; False when that is to be tried again."""
        operation = self.begin("release")
        with outcome(operation) as told:
            self.lease.release()
            operation.tell("ok")
        return "unknown" not in told


@contextlib.contextmanager
def outcome(operation: Operation, *, nothing_changed: bool = False) -> Iterator[list[str]]:
    """Write down the promised error an operation ends with, or that one came that nobody did.

    ``nothing_changed`` is what Unavailable says of an operation of one statement.
    """
    told: list[str] = []
    try:
        yield told
        return
    except LockLost as error:
        step, detail = "failed", said(error)
    except Unavailable as error:
        step, detail = "failed" if nothing_changed else "unknown", said(error)
    except OutcomeUnknown as error:
        step, detail = "unknown", said(error)
    except Exception:
        step, detail = "error", {"error": traceback.format_exc()}
    told.append(step)
    operation.tell(step, **detail)


def said(error: Exception) -> dict[str, Any]:
    detail = {"error": type(error).__name__, "said": str(error)[:300]}
    return detail | ({"reason": error.reason} if isinstance(error, LockLost) else {})
