"""The rules for names and durations, checked before any I/O, the same on every database."""

from __future__ import annotations

import inspect
import math
import re
import sys
import threading
import warnings
from collections.abc import Callable
from datetime import timedelta, tzinfo
from types import FrameType
from typing import Any, TypeVar

Seconds = float | timedelta

NAME_MAX = 255
TTL_MIN = 0.1  # below this a round trip is a large part of the lease
TTL_MAX = 366 * 24 * 3600.0
TTL_LONG = 24 * 3600.0
_LONG = (  # the same for all of them, so that it is said once
    "a TTL is longer than a day: if the holder dies, nobody else gets the name for that long, and "
    "after a failover of PostgreSQL dblock grants nothing at all for that long. dblock renews a "
    "lease while you hold it, so a short TTL is enough"
)
IDLE_MIN = 60.0
IDLE_MAX = 36525 * 24 * 3600.0
WAIT_MAX = threading.TIMEOUT_MAX
COUNT_MAX = 2**31 - 1
FENCE_MAX = 2**63 - 1
LIMIT_MAX = 1000


def check_name(name: object, what: str = "a lock name") -> str:
    """Return ``name`` if it is a lock name: non-empty text to 255 characters without NUL.

    Names are exact: case, accents and trailing spaces count, on every database.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"{what} is a str, not {type(name).__name__}: {name!r}"
            + ("; decode it first" if isinstance(name, bytes) else "")
        )
    if not name:
        raise ValueError(f"{what} cannot be empty")
    if len(name) > NAME_MAX:
        raise ValueError(
            f"{what} has at most {NAME_MAX} characters, this one has {len(name)}: "
            f"{name[:40]!r}...; shorten it, or use a hash of it"
        )
    if "\0" in name:
        raise ValueError(f"{what} cannot contain the NUL character: {name!r}")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} must be encodable as UTF-8, {name!r} is not: {error}") from None
    return name


def check_label(label: object) -> str:
    """Return a label if it is text that every database can store; long ones are cut when used."""
    if not isinstance(label, str):
        raise TypeError(f"a label is a str, not {type(label).__name__}: {label!r}")
    try:
        label.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"a label must be encodable as UTF-8, {label!r} is not") from None
    if "\0" in label:
        raise ValueError(f"a label cannot contain the NUL character: {label!r}")
    return label


def seconds(what: str, value: object) -> float:
    """Return a duration in seconds, finite and not negative, from a number or a timedelta."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(
            f"{what} is a number of seconds or a timedelta, not {type(value).__name__}: {value!r}"
        )
    try:
        number = float(value)
    except OverflowError:
        raise OverflowError(f"{what} is too large: {value!r}") from None
    if math.isnan(number):
        raise ValueError(f"{what} cannot be NaN")
    if number < 0:
        raise ValueError(f"{what} cannot be negative: {value!r}")
    return number


def check_idle(idle: object, what: str = "idle") -> float:
    """Return for how long a name must not have been used to be retired: a minute to 100 years.

    By then every try has ended that began before the name was last used: the server gives a
    statement up long before.
    """
    number = seconds(what, idle)
    if number < IDLE_MIN:
        raise ValueError(
            f"{what} is at least {IDLE_MIN:.0f} seconds: a name that was used a moment ago may be "
            f"wanted by a statement that is under way. Choose days: {idle!r}"
        )
    if number > IDLE_MAX:
        raise OverflowError(f"{what} is at most 100 years ({IDLE_MAX:.0f} seconds): {idle!r}")
    return number


def check_keep(keep: object) -> float:
    """Return for how long the result of a call is kept: a minute to 100 years.

    The record has to outlast the transaction that makes it.
    """
    number = seconds("keep", keep)
    if number < IDLE_MIN:
        raise ValueError(
            f"keep is at least {IDLE_MIN:.0f} seconds, and longer than any repetition can be late: "
            f"{keep!r}"
        )
    if number > IDLE_MAX:
        raise OverflowError(f"keep is at most 100 years ({IDLE_MAX:.0f} seconds): {keep!r}")
    return number


def check_ttl(ttl: object, what: str = "a TTL") -> float:
    """Return a lease's TTL in seconds: from 0.1 to 366 days. Warns of one above a day."""
    number = seconds(what, ttl)
    if number < TTL_MIN:
        raise ValueError(f"{what} is at least {TTL_MIN} seconds: {ttl!r}")
    if math.isinf(number):
        raise ValueError(f"{what} is finite: a lease that never ends would outlive a dead holder")
    if number > TTL_MAX:
        raise OverflowError(f"{what} is at most 366 days ({TTL_MAX:.0f} seconds): {ttl!r}")
    if number > TTL_LONG:
        warnings.warn(_LONG, stacklevel=_outside())
    return number


def _outside() -> int:
    """Return the stack level, for a warning of who calls this, of who called dblock."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _package(frame) == "dblock":
        level, frame = level + 1, frame.f_back
    return level


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]  # what exec() runs has none


def check_after(after: object, what: str = "after") -> float:
    """Return for how many seconds a name stays taken when it is given back: none, or a TTL."""
    return check_ttl(after, what) if seconds(what, after) >= TTL_MIN else 0.0


def check_max_hold(max_hold: object, what: str = "max_hold") -> float | None:
    """Return the longest a lease is held in seconds, like a TTL; None for no limit."""
    if max_hold is None:
        return None
    number = seconds(what, max_hold)
    if number < TTL_MIN:
        raise ValueError(f"{what} is at least {TTL_MIN} seconds: {max_hold!r}")
    if math.isinf(number):
        raise ValueError(f"{what} is finite; for no limit give None")
    return number


def check_max_renewals(max_renewals: object) -> int | None:
    """Return how often a lease renews itself; None for no limit."""
    if max_renewals is None:
        return None
    if isinstance(max_renewals, bool) or not isinstance(max_renewals, int):
        raise TypeError(f"max_renewals is an int, not {type(max_renewals).__name__}")
    if max_renewals < 0:
        raise ValueError(f"max_renewals cannot be negative: {max_renewals!r}")
    return max_renewals


def check_zone(tz: object) -> tzinfo | None:
    """Return a time zone, from its name in the IANA database or as it is; None for none."""
    if tz is None or isinstance(tz, tzinfo):
        return tz
    if not isinstance(tz, str):
        raise TypeError(f"tz is a zone's name or a tzinfo, not {type(tz).__name__}: {tz!r}")
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"{tz!r} is no time zone that this machine knows, as Europe/Berlin is one; where it "
            "has no database of them: pip install tzdata"
        ) from None


def check_count(what: str, count: object) -> int:
    """Return a number of things that is at least one."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{what} is an int, not {type(count).__name__}")
    if not 1 <= count <= COUNT_MAX:
        raise ValueError(f"{what} is between 1 and {COUNT_MAX}: {count!r}")
    return count


def check_limit(limit: object) -> int:
    """Return the limit of a semaphore: from 1 to 1000.

    Who takes a slot looks at one after the other until one is free, so many are not for locks.
    """
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"a limit is an int, not {type(limit).__name__}: {limit!r}")
    if not 1 <= limit <= LIMIT_MAX:
        raise ValueError(
            f"a limit is between 1 and {LIMIT_MAX}, not {limit!r}: who takes a slot looks at one "
            "after the other until one is free"
        )
    return limit


def check_semaphore(name: object) -> str:
    """Return the name of a semaphore: that of a lock, with room for the numbers of its slots."""
    checked, most = check_name(name, "a semaphore's name"), NAME_MAX - len(f"#{LIMIT_MAX}")
    if len(checked) > most:
        raise ValueError(
            f"a semaphore's name has at most {most} characters, this one has {len(checked)}: "
            f"{checked[:40]!r}...; its slots are called NAME#1 to NAME#{LIMIT_MAX}. Shorten it, or "
            "use a hash of it"
        )
    return checked


def check_fence(fence: object) -> int:
    """Return a fence: a whole number from 1 on."""
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise TypeError(
            f"a fence is an int, lease.fence, not {type(fence).__name__}: {fence!r}"
            + ("; convert it with int()" if isinstance(fence, str) else "")
        )
    if fence < 1:
        raise ValueError(f"a fence is at least 1, as every lease's is: {fence!r}")
    if fence > FENCE_MAX:
        raise OverflowError(f"a fence is at most {FENCE_MAX}: {fence!r}")
    return fence


def check_flag(what: str, flag: object) -> bool:
    """Return ``flag`` if it is one: a text such as "false" is not."""
    if not isinstance(flag, bool):
        raise TypeError(f"{what} is True or False, not {flag!r}")
    return flag


def check_renew(renew: object) -> bool:
    """Return whether a lease renews itself."""
    if not isinstance(renew, bool):
        raise TypeError(f"renew is True or False, not {renew!r}; max_renewals limits how often")
    return renew


def check_fair(fair: object) -> bool:
    """Return whether those who wait are served in the order of arrival wherever they are."""
    if not isinstance(fair, bool):
        raise TypeError(f"fair is True or False, not {fair!r}")
    return fair


C = TypeVar("C")


def check_callback(what: str, callback: C) -> C:
    """Return a callback, or None for none."""
    if callback is None:
        return callback
    if not callable(callback):
        raise TypeError(f"{what} is a function, not {type(callback).__name__}: {callback!r}")
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{what} cannot be a coroutine function: nobody would await it")
    return callback


F = TypeVar("F", bound=Callable[..., Any])


def check_runnable(function: F) -> F:
    """Return a function to decorate: one whose body has run when it returns."""
    if any(
        is_lazy(function)
        for is_lazy in (
            inspect.iscoroutinefunction,
            inspect.isgeneratorfunction,
            inspect.isasyncgenfunction,
        )
    ):
        raise TypeError(
            f"{function!r} would return before its body runs, and the body would run unlocked; use "
            "`with` inside it"
        )
    return function


def check_wait(wait: object) -> float | None:
    """Return a wait in seconds; None waits for ever, 0 tries once."""
    if wait is None:
        return None
    number = seconds("a wait", wait)
    if math.isinf(number):
        raise ValueError("a wait is finite; to wait for ever give None")
    if number > WAIT_MAX:
        raise OverflowError(f"a wait is at most {WAIT_MAX:.0f} seconds; to wait for ever give None")
    return number


def check_acquire(blocking: object, timeout: object, wait: float | None) -> float | None:
    """Return the wait that ``acquire(blocking, timeout)`` asks for.

    The arguments and their errors are those of :meth:`threading.Lock.acquire`; a timeout of -1
    means the wait the lock was made with.
    """
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"a timeout is a number of seconds, not {type(timeout).__name__}")
    if not blocking:
        if timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return 0.0
    if timeout == -1:
        return wait
    if math.isnan(timeout):
        raise ValueError("a timeout cannot be NaN")
    if timeout < 0:
        raise ValueError(f"a timeout is -1 or not negative: {timeout!r}")
    if timeout > WAIT_MAX:
        raise OverflowError(f"a timeout is at most {WAIT_MAX:.0f} seconds: {timeout!r}")
    return float(timeout)


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}\Z")


def check_identifier(what: str, value: object) -> str:
    """Return a schema name or table prefix: letters, digits and underscores."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}: {value!r}")
    if not _IDENTIFIER.match(value):
        raise ValueError(
            f"{what} has letters, digits and underscores, does not begin with a digit and has "
            f"at most 41 characters: {value!r}"
        )
    return value
