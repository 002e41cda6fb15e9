"""The options of a lease, as the user gave them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from .arguments import Seconds, check_max_hold, check_max_renewals, check_renew
from .protocol.schedule import Danger, Plan

if TYPE_CHECKING:
    from .errors import LockLost
    from .policy import RetryPolicy


class AttachKeywords(TypedDict, total=False):
    """The keywords of :meth:`.Locks.attach`."""

    label: str | None
    renew: bool
    max_renewals: int | None
    max_hold: Seconds | None
    on_danger: Callable[[Danger], None] | None
    on_lost: Callable[[LockLost], None] | None


class SlotKeywords(AttachKeywords, total=False):
    """The keywords of :meth:`.Locks.semaphore`."""

    fair: bool
    retry: RetryPolicy | None


class LeaseKeywords(SlotKeywords, total=False):
    """The keywords of :meth:`.Locks.lease`, and of methods that make a lease with it."""

    reentrant: bool


class ElectionKeywords(TypedDict, total=False):
    """The keywords of :meth:`.Locks.election`."""

    fair: bool
    retry: RetryPolicy | None
    label: str | None
    max_hold: Seconds | None
    on_danger: Callable[[Danger], None] | None
    on_lost: Callable[[LockLost], None] | None


class LeaseOptions(NamedTuple):
    """The arguments of :meth:`.Locks.lease`.

    All of them have been checked, except ``wait``, which every handle checks.
    """

    name: str
    plan: Plan
    retry: RetryPolicy
    wait: Seconds | None = None
    reentrant: bool = False
    fair: bool = False
    label: str = ""
    on_danger: Callable[[Danger], None] | None = None
    on_lost: Callable[[LockLost], None] | None = None


@lru_cache(maxsize=64, typed=True)
def plan(ttl: float, renew: bool, max_renewals: int | None, max_hold: Seconds | None) -> Plan:
    """Return a plan. It is cached, since most leases have the same. Its TTL has been checked."""
    return Plan(ttl, check_renew(renew), check_max_renewals(max_renewals), check_max_hold(max_hold))
