"""The rules for names and durations, checked before any I/O, the same on every database."""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import warnings
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

from .decorating import is_coroutine_function
from .lock_state import counted

Seconds = float | timedelta

NAME_MAX = 255
TTL_MIN = 0.1  # seconds; below this a round trip is a large part of the lease
RENEW_EVERY_MIN = TTL_MIN / 2  # seconds
TTL_MAX = 366 * 24 * 3600.0  # seconds
TTL_LONG = 24 * 3600.0  # seconds; dblock warns of a longer TTL
_LONG = (  # one text for all leases, so that Python shows the warning once
    "a TTL is longer than a day: if the holder dies, the name stays taken until the TTL is over, "
    "and after a failover of PostgreSQL dblock grants nothing at all for that time. dblock renews "
    "a lease while you hold it, so a short TTL is enough"
)
IDLE_MIN = 60.0  # seconds
IDLE_MAX = 36525 * 24 * 3600.0  # seconds
INTERVAL_MIN, INTERVAL_MAX = 0.01, 3600.0  # seconds
WAIT_MAX = threading.TIMEOUT_MAX  # seconds
COUNT_MAX = 2**31 - 1
FENCE_MAX = 2**63 - 1
LIMIT_MAX = 1000


def check_name(name: object, what: str = "a lock name") -> str:
    """Return ``name``, or raise an error. A lock name is text of 1 to 255 characters without NUL.

    Names are exact. Case, accents and trailing spaces count, on every database.
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


#: How many characters of an owner label the tables store.
LABEL_MAX = 255


def check_label(label: object) -> str:
    """Return ``label``, or raise an error. Every database can store it. Long labels are cut."""
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
    """Return the seconds of a number or a timedelta. They are not negative and not NaN."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
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
    """Return after how long without use dblock retires a name: a minute to 100 years.

    No statement takes that long. So no try can be under way that began before the last use.
    """
    number = seconds(what, idle)
    if number < IDLE_MIN:
        raise ValueError(
            f"{what} is at least {IDLE_MIN:.0f} seconds, because a statement under way may still "
            f"need a name that was just used: {idle!r}. Choose days"
        )
    if number > IDLE_MAX:
        raise OverflowError(f"{what} is at most 100 years ({IDLE_MAX:.0f} seconds): {idle!r}")
    return number


def check_age(age: object, what: str = "older_than") -> float:
    """Return the age from which on dblock deletes keys and records: up to 100 years."""
    number = seconds(what, age)
    if number > IDLE_MAX:
        raise OverflowError(f"{what} is at most 100 years ({IDLE_MAX:.0f} seconds): {age!r}")
    return number


def check_keep(keep: object) -> float:
    """Return for how many seconds dblock keeps the result of a call: a minute to 100 years.

    The record has to outlast the transaction that makes it.
    """
    number = seconds("keep", keep)
    if number < IDLE_MIN:
        raise ValueError(
            f"keep is at least {IDLE_MIN:.0f} seconds: {keep!r}. Choose more than the time within "
            "which your clients repeat a call"
        )
    if number > IDLE_MAX:
        raise OverflowError(f"keep is at most 100 years ({IDLE_MAX:.0f} seconds): {keep!r}")
    return number


def check_ttl(ttl: object, what: str = "a TTL") -> float:
    """Return a lease's TTL, from 0.1 seconds to 366 days. Warn if it is longer than a day."""
    if type(ttl) is float and TTL_MIN <= ttl <= TTL_LONG:  # the usual case, fast
        return ttl
    number = seconds(what, ttl)
    if number < TTL_MIN:
        raise ValueError(f"{what} is at least {TTL_MIN} seconds: {ttl!r}")
    if math.isinf(number):
        raise ValueError(f"{what} is finite: a lease without an end would outlive a dead holder")
    if number > TTL_MAX:
        raise OverflowError(f"{what} is at most 366 days ({TTL_MAX:.0f} seconds): {ttl!r}")
    if number > TTL_LONG:
        warnings.warn(_LONG, stacklevel=_outside())
    return number


def check_pause(longest: object, what: str = "longest_ttl") -> float:
    """Return the longest time in seconds for which a present lease lasts: 0 to 366 days."""
    number = seconds(what, longest)
    if number > TTL_MAX:
        raise OverflowError(f"{what} is at most 366 days ({TTL_MAX:.0f} seconds): {longest!r}")
    return number


def _outside() -> int:
    """Return the stack level of the code that called dblock, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _package(frame) == "dblock":
        level, frame = level + 1, frame.f_back
    return level


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]  # code of exec() has no name


def check_after(after: object, what: str = "after") -> float:
    """Return for how many seconds a released name stays taken: 0, or what a TTL can be."""
    if type(after) is float and after == 0.0:  # the usual case, fast
        return after
    return check_ttl(after, what) if seconds(what, after) >= TTL_MIN else 0.0


def check_max_hold(max_hold: object, what: str = "max_hold") -> float | None:
    """Return the longest time for which a lease is held, in seconds. None is no limit."""
    if max_hold is None:
        return None
    number = seconds(what, max_hold)
    if number < TTL_MIN:
        raise ValueError(f"{what} is at least {TTL_MIN} seconds: {max_hold!r}")
    if math.isinf(number):
        raise ValueError(f"{what} is finite. For no limit, give None")
    return number


def check_max_renewals(max_renewals: object) -> int | None:
    """Return how often a lease renews itself. None is no limit."""
    if max_renewals is None:
        return None
    number = _whole("max_renewals", max_renewals)
    if not 0 <= number <= COUNT_MAX:
        raise ValueError(f"max_renewals is between 0 and {COUNT_MAX}: {max_renewals!r}")
    return number


def check_renew_every(renew_every: object, ttl: float, *, renew: bool) -> float | None:
    """Return the seconds between two renewals of a lease with this TTL. None is a third of it."""
    if renew_every is None:
        return None
    number = seconds("renew_every", renew_every)
    if not renew:
        raise ValueError("renew_every does nothing with renew=False: leave one of them out")
    if not RENEW_EVERY_MIN <= number <= ttl / 2:
        raise ValueError(
            f"renew_every is at least {RENEW_EVERY_MIN} s, and at most half of the TTL of {ttl:g} "
            f"s so that there is time for a second try: {renew_every!r}"
        )
    return number


def _whole(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is an int, not {type(value).__name__}: {value!r}")
    return value


def check_count(what: str, count: object) -> int:
    """Return a whole number, at least 1."""
    number = _whole(what, count)
    if not 1 <= number <= COUNT_MAX:
        raise ValueError(f"{what} is between 1 and {COUNT_MAX}: {count!r}")
    return number


def check_limit(limit: object) -> int:
    """Return the limit of a semaphore: from 1 to 1000.

    To take a slot, dblock tries one after the other until one is free, so a larger limit is slow.
    """
    number = _whole("a limit", limit)
    if not 1 <= number <= LIMIT_MAX:
        raise ValueError(
            f"a limit is between 1 and {LIMIT_MAX}, not {limit!r}: to take a slot, dblock looks at "
            "one after the other until it finds a free one"
        )
    return number


def check_semaphore(name: object) -> str:
    """Return the name of a semaphore: a lock name with room for the numbers of its slots."""
    checked, most = check_name(name, "a semaphore's name"), NAME_MAX - len(f"#{LIMIT_MAX}")
    if len(checked) > most:
        raise ValueError(
            f"a semaphore's name has at most {most} characters, this one has {len(checked)}: "
            f"{checked[:40]!r}...; its slots are called NAME#1 to NAME#{LIMIT_MAX}. Shorten it, or "
            "use a hash of it"
        )
    return checked


def check_fence(fence: object) -> int:
    """Return a fence: a whole number, at least 1."""
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise TypeError(
            f"a fence is an int, such as lease.fence, not {type(fence).__name__}: {fence!r}"
            + ("; convert it with int()" if isinstance(fence, str) else "")
        )
    if fence < 1:
        raise ValueError(f"a fence is at least 1: {fence!r}. Give lease.fence")
    if fence > FENCE_MAX:
        raise OverflowError(f"a fence is at most {FENCE_MAX}: {fence!r}")
    return fence


TOKEN = 32  # characters
_TOKEN = re.compile(rf"[0-9a-f]{{{TOKEN}}}")
_DETACHED = re.compile(r"([0-9a-f]{32})\.([1-9][0-9]{0,18})\.(.+)", re.DOTALL)


def check_detached(text: object) -> tuple[str, str, int]:
    """Return the name, the token and the fence of a hold that ``lease.detach()`` has put into text.

    The text is a secret, so no error repeats it.
    """
    if not isinstance(text, str):
        raise TypeError(f"attach takes the text of lease.detach(), not {type(text).__name__}")
    match = _DETACHED.fullmatch(text)
    if match is None or int(match[2]) > FENCE_MAX:
        raise ValueError(
            f"a text of {counted(len(text), 'character')} is no detached hold: attach what "
            "lease.detach() has returned, whole and unchanged"
        )
    return check_name(match[3]), match[1], int(match[2])


def check_token(token: object) -> str:
    """Return the token of a detached lease: 32 hexadecimal digits. No error repeats it."""
    if not isinstance(token, str):
        raise TypeError(f"a token is a str, not {type(token).__name__}")
    if _TOKEN.fullmatch(token) is None:
        raise ValueError(
            "a token is 32 hexadecimal digits in lower case, such as secrets.token_hex(16) "
            f"returns; this text has {counted(len(token), 'character')}"
            + (", and not only such digits" if len(token) == TOKEN else "")
        )
    return token


def check_flag(what: str, flag: object) -> bool:
    """Return ``flag``. It is True or False, and not a text such as "false"."""
    if not isinstance(flag, bool):
        raise TypeError(f"{what} is True or False, not {flag!r}")
    return flag


def check_renew(renew: object) -> bool:
    """Return whether a lease renews itself."""
    if not isinstance(renew, bool):
        raise TypeError(f"renew is True or False, not {renew!r}; max_renewals limits how often")
    return renew


C = TypeVar("C")


def check_instance(what: str, value: object, kind: type[C]) -> C:
    """Return an object of one of dblock's own classes."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{what} is a dblock.{kind.__name__}, not {type(value).__name__}: {value!r}"
        )
    return value


def check_callback(what: str, callback: C) -> C:
    """Return a callback. It is a function, or None."""
    if callback is None:
        return callback
    if not callable(callback):
        raise TypeError(f"{what} is a function, not {type(callback).__name__}: {callback!r}")
    if is_coroutine_function(callback):
        raise TypeError(f"{what} cannot be a coroutine function: nobody would await it")
    return callback


def check_wait(wait: object) -> float | None:
    """Return a wait in seconds. None waits for ever, and 0 tries once."""
    if wait is None:
        return None
    number = seconds("a wait", wait)
    if math.isinf(number):
        raise ValueError("a wait is finite. To wait for ever, give None")
    if number > WAIT_MAX:
        raise OverflowError(
            f"a wait is at most {WAIT_MAX:.0f} seconds. To wait for ever, give None"
        )
    return number


def check_interval(interval: object) -> float:
    """Return the seconds between two polls: 10 ms to an hour."""
    number = seconds("an interval", interval)
    if not INTERVAL_MIN <= number <= INTERVAL_MAX:
        raise ValueError(
            f"an interval is {INTERVAL_MIN:g} to {INTERVAL_MAX:g} seconds, not {number:g}: each "
            "look is a round trip"
        )
    return number


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}\Z")


def check_identifier(what: str, value: object) -> str:
    """Return the name of a schema or the prefix of tables."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}: {value!r}")
    if not _IDENTIFIER.match(value):
        raise ValueError(
            f"{what} has letters, digits and underscores, at most 41, and does not begin with a "
            f"digit: {value!r}"
        )
    return value


def check_json(what: str, value: Any, *, sort: bool = False) -> str:
    """Return ``value`` as JSON, in ASCII."""
    try:
        return json.dumps(value, allow_nan=False, sort_keys=sort, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise type(error)(f"{what} is something that JSON can express: {error}") from None
