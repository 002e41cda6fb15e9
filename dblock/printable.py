"""Names and labels come from others: nothing in them may steer a terminal or forge a line of a log.

Where text is made for people it goes through :func:`printable`; data (attributes, JSON, telemetry)
stays exact.
"""

from __future__ import annotations

from datetime import datetime


def printable(text: str) -> str:
    """Return ``text`` on one line; what repr() escapes is escaped: line breaks, control characters,
    those that reverse the order of others or cannot be seen."""
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
    """Return a moment as people read it; nothing for none."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else ""
