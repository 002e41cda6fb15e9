"""The holds of each task."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ..holding.callers import CallerRegistry
from ..holding.holds import CallerHolds
from .bridge import whose


class TaskHolds(CallerRegistry):
    """The holds of each task.

    A context variable would not do: a task's children inherit it, and two tasks would count as one.
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
