"""The options of leases, and of every other maker that takes some of them. They are named here.

A maker takes ``**options: Unpack[LeaseKeywords]`` and passes them on. So a new option is a line in
one of these classes, a parameter of :func:`lease_options`, and a field of :class:`LeaseOptions` or
of :class:`~dblock.protocol.schedule.Plan`. :meth:`.Locks.lease` documents all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar

from ..arguments import (
    Seconds,
    check_flag,
    check_label,
    check_max_hold,
    check_max_renewals,
    check_renew,
    check_renew_every,
    check_ttl,
)
from ..decorating import check_callback
from ..holding.lease_hold import NO_CALLBACKS, Callbacks
from ..protocol.schedule import Danger, Plan

if TYPE_CHECKING:
    from ..errors import LockLost
    from ..policy import RetryPolicy

R = TypeVar("R")


class Kept(TypedDict, Generic[R], total=False):
    """The options of every hold that dblock keeps.

    ``R`` is the result of the callbacks: None in threads. In tasks they may be coroutine functions.
    """

    ttl: Seconds
    label: str | None
    on_danger: Callable[[Danger], R] | None
    on_lost: Callable[[LockLost], R] | None


class Renewed(TypedDict, total=False):
    """The options of holds whose renewals the caller may limit."""

    renew: bool
    renew_every: Seconds | None
    max_renewals: int | None


class Ended(TypedDict, total=False):
    """The option of holds that end after a time."""

    max_hold: Seconds | None


class Tried(TypedDict, total=False):
    """The options of tries that may be refused."""

    fair: bool
    retry: RetryPolicy | None


class AttachKeywords(Kept[R], Renewed, Ended, Generic[R], total=False):
    """The options of :meth:`.Locks.attach`."""


class SkipKeywords(AttachKeywords[R], Tried, Generic[R], total=False):
    """The options of :meth:`.Locks.skip`."""

    reentrant: bool


class LeaseKeywords(SkipKeywords[R], Generic[R], total=False):
    """The options of :meth:`.Locks.lease` and :meth:`.Locks.shared`."""

    wait: Seconds | None


class SemaphoreKeywords(AttachKeywords[R], Tried, Generic[R], total=False):
    """The options of :meth:`.Locks.semaphore`."""

    wait: Seconds | None


class ElectionKeywords(Kept[R], Tried, Ended, Generic[R], total=False):
    """The options of :meth:`.Locks.election`."""


class CronKeywords(Kept[R], Tried, Generic[R], total=False):
    """The options of :meth:`.Locks.cron` that a lease has too."""


#: The options that each maker takes.
TAKEN = {
    maker: frozenset(keywords.__annotations__)
    for maker, keywords in {
        "lease": LeaseKeywords,
        "shared": LeaseKeywords,
        "skip": SkipKeywords,
        "attach": AttachKeywords,
        "semaphore": SemaphoreKeywords,
        "election": ElectionKeywords,
        "cron": CronKeywords,
    }.items()
}


class LeaseOptions(NamedTuple):
    """The options of a lease, checked, with defaults for the missing ones.

    Only ``wait`` is unchecked: every handle checks it.
    """

    plan: Plan
    retry: RetryPolicy
    wait: Seconds | None = None
    reentrant: bool = False
    fair: bool = False
    label: str = ""
    callbacks: Callbacks = NO_CALLBACKS
    #: The owner label of the client for which a handle waits, if that is not this process.
    client: str = ""


def unknown_option(maker: str, given: Mapping[str, Any]) -> TypeError:
    """Return the error for an option that this maker of :class:`.Locks` does not take."""
    unknown, taken = min(given.keys() - TAKEN[maker]), ", ".join(sorted(TAKEN[maker]))
    return TypeError(f"{maker}() has no option {unknown!r}; of a lease's options it takes {taken}")


def check_keywords(maker: str, given: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that this maker of :class:`.Locks` does not take."""
    if not given.keys() <= TAKEN[maker]:
        raise unknown_option(maker, given)


def lease_options(
    default: RetryPolicy,
    policy: Callable[[RetryPolicy], RetryPolicy],
    *,
    ttl: Seconds = 30.0,
    wait: Seconds | None = None,
    reentrant: bool = False,
    fair: bool = False,
    retry: RetryPolicy | None = None,
    label: str | None = None,
    renew: bool = True,
    renew_every: Seconds | None = None,
    max_renewals: int | None = None,
    max_hold: Seconds | None = None,
    on_danger: Callable[[Danger], None] | None = None,
    on_lost: Callable[[LockLost], None] | None = None,
) -> LeaseOptions:
    """Check the options of a lease.

    ``default`` is the policy of these Locks, and ``policy`` prepares another one. Raises TypeError
    and ValueError.
    """
    limits = check_ttl(ttl), renew, renew_every, max_renewals, max_hold
    try:
        planned = plan(*limits)
    except TypeError:  # of a check, or of the cache, which takes no list and does not say which
        planned = None
    return LeaseOptions(
        plan.__wrapped__(*limits) if planned is None else planned,
        default if retry is None else policy(retry),
        wait,
        reentrant is not False and check_flag("reentrant", reentrant),
        fair is not False and check_flag("fair", fair),
        "" if label is None else check_label(label),
        NO_CALLBACKS if on_danger is None is on_lost else _callbacks(on_danger, on_lost),
    )


def _callbacks(
    on_danger: Callable[[Danger], None] | None, on_lost: Callable[[LockLost], None] | None
) -> Callbacks:
    return Callbacks(
        None if on_danger is None else check_callback("on_danger", on_danger),
        None if on_lost is None else check_callback("on_lost", on_lost),
    )


@lru_cache(maxsize=64, typed=True)
def plan(
    ttl: float,
    renew: bool = True,
    renew_every: Seconds | None = None,
    max_renewals: int | None = None,
    max_hold: Seconds | None = None,
) -> Plan:
    """Return a plan, the same for most leases. Its TTL has been checked."""
    return Plan(
        ttl,
        check_renew(renew),
        check_renew_every(renew_every, ttl, renew=renew),
        check_max_renewals(max_renewals),
        check_max_hold(max_hold),
    )
