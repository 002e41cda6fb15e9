"""Periods: an hour, a day and so on in a time zone, in each of which a job succeeds once."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

from ..arguments import check_name

#: The format of each period's slots. ISO 8601's weeks begin on Monday.
PERIODS = {
    "minute": "%Y-%m-%dT%H:%M",
    "hour": "%Y-%m-%dT%H",
    "day": "%Y-%m-%d",
    "week": "%G-W%V",
    "month": "%Y-%m",
}

# Periods that come twice when summer time ends; their slots have the offset, so they are two slots.
_REPEATED = ("minute", "hour")

# Other words for the periods, for the hint in the error; "m" is a minute, as it is for --wait.
# Similar spellings are found without this table.
_OTHER_WORDS = {
    "minute": ("m", "min", "1m", "60s"),
    "hour": ("h", "hr", "1h", "60m"),
    "day": ("d", "1d", "24h", "night", "nightly"),
    "week": ("w", "wk", "1w", "7d"),
    "month": ("mo", "1mo", "30d"),
}


def check_period(period: object) -> str:
    """Return a period.

    Any other word is refused. It could only be a slot that never ends, so the job would succeed
    once for ever.
    """
    if not isinstance(period, str):
        raise TypeError(f"once_per is a str, not {type(period).__name__}: {period!r}")
    if period in PERIODS:
        return period
    meant = _similar(period)
    hint = "" if meant is None else f"Did you mean {meant!r}? "
    raise ValueError(
        f"once_per is one of {', '.join(PERIODS)}, not {period!r}. {hint}Give a slot of your own "
        "as once_for"
    )


def check_slot(slot: object, what: str) -> str:
    """Return a slot of a job's own: any text but a period, which would be one slot for ever."""
    checked = check_name(slot, what)
    if checked in PERIODS:
        raise ValueError(f"{what} cannot be the period {slot!r}: give that as once_per")
    return checked


def check_together(
    at_least: float,
    at_most: float | None,
    once_per: str | None,
    once_for: str | None,
    tz: tzinfo | None,
) -> None:
    """Refuse options that exclude each other. Each has been checked by itself."""
    if at_most is not None and at_least > at_most:
        raise ValueError(f"at_least ({at_least!r}) is longer than at_most ({at_most!r})")
    if once_per is not None and once_for is not None:
        raise ValueError("give either once_per, a period, or once_for, a slot of your own")
    if tz is not None and once_per is None:
        raise ValueError(
            "a time zone goes with once_per, whose period begins by its clocks: give once_per too, "
            "or no tz="
        )


def _similar(word: str) -> str | None:
    from difflib import get_close_matches

    word = word.strip().lower()
    for period, others in _OTHER_WORDS.items():
        if word in others:
            return period
    letters = re.sub("[^a-z]", "", word)
    return next(iter(get_close_matches(letters, PERIODS, 1, 0.5)), None)


def slot_at(period: str, moment: datetime, zone: tzinfo | None = None) -> str:
    """Return the slot of a period in which a moment lies, in UTC or in a time zone."""
    if zone is None:
        return moment.strftime(PERIODS[period])
    offset = "%z" if period in _REPEATED else ""
    return moment.astimezone(zone).strftime(PERIODS[period] + offset)


def check_zone(tz: object) -> tzinfo | None:
    """Return a time zone. ``tz`` is a name of the IANA database, a tzinfo, or None."""
    if tz is None or isinstance(tz, tzinfo):
        return tz
    if not isinstance(tz, str):
        raise TypeError(f"tz is a zone's name or a tzinfo, not {type(tz).__name__}: {tz!r}")
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"this machine knows no time zone {tz!r}. Give a name such as Europe/Berlin. If the "
            "machine knows none at all: pip install tzdata"
        ) from None
