"""Making names and labels safe to print: they must not steer a terminal or forge a log line.

Names and labels come from other processes. Text for people goes through :func:`printable`; data
(attributes, JSON, telemetry) stays exact.
"""

from __future__ import annotations

from datetime import datetime


def printable(text: str) -> str:
    """Return ``text`` on one line, with the same characters escaped as in repr(): line breaks,
    control characters, invisible characters, and characters that reverse the order of others."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with the noun that goes with it: 1 slot, 2 slots, 0 entries."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def moment(at: datetime | None) -> str:
    """Return a moment as text for people; "" for None."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else ""
