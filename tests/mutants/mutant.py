"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """``old`` occurs ``count`` times in ``file``; all of them become ``new``."""

    name: str
    promise: str
    file: str
    old: str
    new: str
    test: str
    count: int = 1

    def apply(self, source: str) -> str:
        found = source.count(self.old)
        if found != self.count:
            raise ValueError(
                f"{self.name}: {self.file} has {found} times, not {self.count}: {self.old!r}"
            )
        return source.replace(self.old, self.new)
