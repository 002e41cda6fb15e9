"""Durations as people write them in a shell: ``90``, ``1m30s``, ``2d12h``, ``500ms``."""

from __future__ import annotations

import re

_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_PARTS = "".join(f"(?:({_NUMBER}){unit})?" for unit in (*_SECONDS, "ms"))
# It accepts a sign, so that the check of the seconds can refuse it with a better message.
_DURATION = re.compile(f"(?P<sign>-?)(?:(?P<plain>{_NUMBER})|(?P<parts>(?=.){_PARTS}))")

HELP = (
    "A DURATION is a number of seconds, or numbers with the units d, h, m, s and ms, the longest "
    "first: 90, 1.5h, 1m30s, 2d12h, 500ms."
)


class Duration(float):
    """Seconds. A message shows them as the user wrote them."""

    written: str

    def __repr__(self) -> str:
        return self.written


def duration(text: str) -> Duration:
    """Return the seconds of a duration. Raise ValueError for text that is none."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not a duration: give seconds (90, 0.5), or numbers with the units d, h, "
            "m, s and ms, the longest first and each once (2d12h, 1m30s, 500ms)"
        )
    if found["plain"] is not None:
        seconds = float(found["plain"])
    else:
        *parts, milliseconds = (float(part or 0) for part in found.groups()[3:])
        units = zip(parts, _SECONDS.values(), strict=True)
        seconds = sum(part * unit for part, unit in units) + milliseconds / 1000
    made = Duration(-seconds if found["sign"] else seconds)
    made.written = text
    return made
