"""Which names were waited for a moment ago, so that whoever wants one again is likely to wait."""

from __future__ import annotations

# A name is hot if it was got within so many seconds; for so long after that. So many are known.
QUICK, LASTS, NAMES = 0.25, 1.0, 64


class HotNames:
    """The names that this process has waited for, for a moment and a moment ago."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def note(self, name: str, waited: float, now: float) -> None:
        """Take down how long it took to get a name that others wanted too."""
        if waited <= QUICK:
            if len(self._until) >= NAMES:
                self._until.clear()
            self._until[name] = now + LASTS

    def take(self, name: str, now: float) -> bool:
        """Return whether a name is hot, which holds for one wait."""
        return bool(self._until) and self._until.pop(name, 0.0) > now
