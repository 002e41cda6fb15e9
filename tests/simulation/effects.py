"""What the users' transactions have done: for each key once, and behind a gate in order."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from tests.simulation.loop import Violation
from tests.simulation.tables import Committed


@dataclass(frozen=True, slots=True)
class Made:
    """A call that somebody has begun; moments are in seconds of the database's clock."""

    payload: object
    at: float
    #: It is on record until then, at least.
    until: float


class Effects:
    """The calls that are made once and the writes behind gates, as they are committed."""

    def __init__(self) -> None:
        #: The calls by their results: each has another.
        self._made: dict[int, Made] = {}
        #: The keys and results that callers were told of.
        self._told: set[tuple[str, int]] = set()
        self._before = self._now = Committed({}, {}, set(), {})

    def begin(self, made: Made) -> int:
        """A call is made; return the result that it is to have."""
        result = len(self._made) + 1
        self._made[result] = made
        return result

    def look(self, committed: Committed, now: float) -> None:
        """Compare what is committed now with what is on record, and with what was before."""
        self._before, self._now = self._now, committed
        for key in {key for key, _ in committed.effects.values()} | committed.records.keys():
            self._check_call(key, now)
        self._check_passed()

    def _check_call(self, key: str, now: float) -> None:
        """As long as a call is kept it has one effect, and the result of that is on record."""
        results = self._results(key)
        for one, other in pairwise(results):
            if self._made[other].at < self._made[one].until:
                raise Violation(f"the call {key!r} was made twice: {results}")
        if key not in self._now.records:
            if now < self._made[results[-1]].until:
                raise Violation(f"the call {key!r} was made, and is not on record")
            return
        recorded = self._now.records[key]
        if recorded is None:
            raise Violation(f"the call {key!r} is on record without a result")
        if results[-1:] != [json.loads(recorded)]:
            raise Violation(f"the call {key!r} has had {results}, and on record is {recorded}")

    def _results(self, key: str) -> list[int]:
        """Return the results of a key's effects, in the order in which they began."""
        return sorted(result for of, result in self._now.effects.values() if of == key)

    def _check_passed(self) -> None:
        """What is committed behind a gate has no smaller fence than what was before."""
        largest: defaultdict[str, int] = defaultdict(int)
        passed, before = self._now.passed, self._before.passed
        for id in passed.keys() & before.keys():
            name, fence = passed[id]
            largest[name] = max(fence, largest[name])
        for id in passed.keys() - before.keys():
            name, fence = passed[id]
            if fence < largest[name]:
                raise Violation(f"{fence} has passed the gate {name!r} after {largest[name]}")

    # --- what callers are told ---------------------------------------------------------------

    def made(self, caller: str, key: str, payload: object, result: object) -> None:
        """A caller is told that its call was made, now or before: so it was, with this result."""
        if not isinstance(result, int) or result not in self._results(key):
            raise Violation(f"{caller} is told {result} of {key!r}, not {self._results(key)}")
        if self._made[result].payload != payload:
            raise Violation(f"{caller} is told of a call with another payload under {key!r}")
        self._told.add((key, result))

    def reused(self, caller: str, key: str, payload: object) -> None:
        """A caller is told that its key belongs to a call with another payload: so it does."""
        if all(self._made[result].payload == payload for result in self._results(key)):
            raise Violation(f"{caller} is told that {key!r} belongs to another call")

    def let_through(self, caller: str, name: str, fence: int) -> None:
        """A caller is told that what it wrote behind a gate is committed: so it is."""
        if (name, fence) not in self._now.passed.values():
            raise Violation(f"{caller} is told that {fence} has passed {name!r}, which has not")

    def stopped(self, caller: str, name: str, fence: int, newest: int | None) -> None:
        """A caller is told that a larger fence has passed a gate: so it has."""
        passed = newest is not None and (name, newest) in self._now.passed.values()
        if newest is None or newest <= fence or not passed:
            raise Violation(f"{caller} is told that {newest} has passed {name!r} before {fence}")

    def judge(self) -> None:
        """In the end all is there that anybody was told of."""
        for key, result in self._told:
            if result not in self._results(key):
                raise Violation(f"the call {key!r} has had {self._results(key)}, not {result}")
