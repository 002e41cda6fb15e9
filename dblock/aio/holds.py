"""What each task holds."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ..holding.callers import CallerRegistry
from ..holding.holds import CallerHolds
from .bridge import whose


class TaskHolds(CallerRegistry):
    """What each task holds.

    Not a context variable's value: that is inherited by the tasks a task begins, and two tasks in
    one lock would take themselves for one.
    """

    caller = "task"

    def __init__(self) -> None:
        self._all: WeakKeyDictionary[object, CallerHolds] = WeakKeyDictionary()

    def mine(self) -> CallerHolds:
        key = whose() or self
        found = self._all.get(key)
        if found is None:
            found = self._all[key] = CallerHolds()
        return found
