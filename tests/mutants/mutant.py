"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.code import Code


@dataclass(frozen=True)
class Mutant:
    """In what ``where`` defines, ``old`` occurs ``count`` times; all of them become ``new``.

    ``where`` is a qualified name, as much of its end as tells it from others: `Lease.renew`,
    `release.release`, `schedule.RENEWAL_SHARE`. How the code is broken into lines does not matter.
    """

    name: str
    promise: str
    where: str
    old: str
    new: str
    test: str
    count: int = 1
    #: A line of the simulation that fails with the mutant: ``tests.simulation.teeth`` writes it.
    dies_in: str | None = None
    #: Why no line of the simulation can fail with it.
    beyond: str | None = None

    def plant(self, code: Code) -> tuple[str, str]:
        """Return which file of the code becomes which text."""
        return code.replace(self.where, self.old, self.new, self.count)
