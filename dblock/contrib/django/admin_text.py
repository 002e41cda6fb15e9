"""How the admin's pages show times, durations and the outcome of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from django.db import connections
from django.utils import timezone
from django.utils.html import format_html

from ...lock_state import RunState
from .alias import alias

#: As Django shows an empty field. It shows an empty answer of a method as "None", on some pages.
NOTHING = "-"


def unbroken(text: str) -> str:
    """Return a text that stays on one line of a narrow column."""
    return format_html('<span class="nowrap">{}</span>', text)


def duration(seconds: float) -> str:
    """Return a duration for people: in tenths of a second, from a minute on in two units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(at: datetime | None) -> str:
    """Return a moment in Django's current time zone."""
    return unbroken(f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S %Z}") if at else NOTHING


def aware(at: datetime) -> datetime:
    """Return the moment that Django read from a table of dblock's.

    On MariaDB and SQLite these hold UTC, whatever Django's settings say. With ``USE_TZ = False``
    PostgreSQL answers in the time zone of Django's connection.
    """
    connection = connections[alias()]
    if connection.vendor != "postgresql":
        return at.replace(tzinfo=UTC)
    return at if timezone.is_aware(at) else at.replace(tzinfo=ZoneInfo(connection.timezone_name))


def result(run: RunState) -> str:
    """Return how a run ended."""
    match run.outcome:
        case "failed":
            return f"failed, exit status {run.exit_status}"
        case "unknown":
            return "unknown, no end on record"
    return run.outcome
