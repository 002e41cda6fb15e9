"""Histories written by hand, for the tests of the checker's rules."""

from __future__ import annotations

from .checker import check
from .facts import History, Rule
from .history import PROBE, Event
from .ledger import Ledger, Row


class Story:
    """A history, told hold by hold. Times are given as they come, in seconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.rows: list[Row] = []
        self._ops = 0

    def tell(self, at: float, who: str, op: int, kind: str, step: str, **detail: object) -> None:
        self.events.append(Event(at, who, op, kind, step, detail))

    def begin(self, at: float, who: str, kind: str, **detail: object) -> int:
        self._ops += 1
        self.tell(at, who, self._ops, kind, "sent", **detail)
        return self._ops

    def hold(
        self, who: str, sent: float, start: float, deadline: float, fence: int, name: str = "a"
    ) -> int:
        op = self.begin(sent, who, "acquire", name=name)
        self.tell(start, who, op, "acquire", "ok", fence=fence, deadline=deadline)
        return op

    def act(
        self, who: str, hold: int, kind: str, sent: float, at: float, step: str, **detail: object
    ) -> int:
        """What a holder does, of which the name is "a"."""
        op = self.begin(sent, who, kind, hold=hold, name="a")
        self.tell(at, who, op, kind, step, **detail)
        return op

    def write(
        self,
        who: str,
        commit: float | None,
        fence: int,
        step: str | None = "ok",
        seen: int | None = None,
        *,
        logged: bool = True,
    ) -> int:
        op = self.begin((commit or 9) - 0.02, who, "write", name="a", fence=fence)
        if commit is not None:
            self.tell(commit, who, op, "write", "commit")
        if step is not None:
            self.tell((commit or 9) + 0.02, who, op, "write", step)
        if logged:
            seen = len(self.rows) if seen is None else seen
            place = len(self.rows) + 1
            self.rows.append(Row(f"{who}:{op}", "a", fence, seen, seen + 1, place))
        return op

    def check(
        self, register: int | None = None, *, probed: bool = True, **facts: bool
    ) -> dict[str, Rule]:
        """Check it, with a last hold by the probe; the history has these ``facts``."""
        told = list(self.events)
        if probed:
            fence = max([1000, *(event.detail.get("fence", 0) for event in told)])
            self.hold(PROBE, 1000, 1000.1, 1001, fence + 1)
        events, self.events = sorted(self.events, key=_at), told
        last = self.rows[-1].value if self.rows else 0
        registers = {"a": last if register is None else register}
        history = History(events, Ledger(registers, self.rows), ["a"], **facts)
        return {rule.name: rule for rule in check(history)}

    def broken(
        self, register: int | None = None, *, probed: bool = True, **facts: bool
    ) -> set[str]:
        rules = self.check(register, probed=probed, **facts)
        return {name for name, rule in rules.items() if rule.violations}


def _at(event: Event) -> float:
    return event.at
