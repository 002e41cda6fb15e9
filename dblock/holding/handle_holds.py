"""The holds of a handle: which caller may release one, and that a fork does not inherit them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

from ..errors import NotHeld
from ..io.process_lock import at_the_end, take_over
from ..protocol.observer import Change
from .holds import Hold

if TYPE_CHECKING:
    from .callers import CallerRegistry

H = TypeVar("H", bound=Hold)


class HandleHolds(Generic[H]):
    """The holds of one handle: several, if callers share it and one of them has lost its own.

    A caller is a thread, or a task. ``private`` means that a hold belongs to the caller that took
    it; else every caller that has the handle may release it.
    """

    __slots__ = ("_callers", "_holds", "_kind", "_name", "_private", "last")

    def __init__(
        self, kind: str, name: str, callers: CallerRegistry, *, private: bool = False
    ) -> None:
        self._callers = callers
        self._kind = kind
        self._name = name
        self._private = private
        self._holds: list[H] = []
        self.last: H | None = None

    def add(self, hold: H) -> None:
        """Register a new hold of the caller."""
        if hold.runtime.observer is not None:
            hold.tell(Change.GRANTED)
        hold.caller = self._callers.mine()
        hold.caller.add(hold)
        self._holds.append(hold)
        self.last = hold

    def find(self) -> H | None:
        """Return the caller's own hold; else the newest one, unless holds are private.

        The caller's own comes first, lost or not, so that the caller learns of its loss, and does
        not release a hold that another caller has got since.
        """
        holds = list(self._holds)
        if not holds:
            return None
        if at_the_end():
            take_over()
        if len(holds) == 1 and not self._private:
            return holds[0]  # whichever caller has it
        mine = self._callers.mine()
        for hold in reversed(holds):
            if hold.caller is mine:
                return hold
        return None if self._private else holds[-1]

    def get(self, *, ending: bool = False) -> H:
        """Return the hold as :meth:`find` does. Raises NotHeld if there is none, or if it is the
        parent process's.

        ``ending`` allows a hold whose release has failed, for another try.
        """
        hold = self.find()
        if hold is None or (hold.ended and not ending):
            raise self.not_held()
        if hold.pid != os.getpid():
            raise NotHeld(
                f"the {self._kind} on {self._name!r} is held by the parent process "
                f"(pid {hold.pid}), not by this fork",
                name=self._name,
            )
        return hold

    def not_held(self) -> NotHeld:
        by = f" by this {self._callers.caller}" if self._private else ""
        return NotHeld(f"the {self._kind} on {self._name!r} is not held{by}", name=self._name)

    def take(self, hold: H, why: Change = Change.RELEASED) -> bool:
        """Remove the hold, to end it; False if another caller has removed it already."""
        believed, hold.ended = not hold.ended and hold.loss is None, True
        if believed and hold.runtime.observer is not None:
            hold.tell(why)
        try:
            self._holds.remove(hold)
        except ValueError:
            return False
        return True

    def put_back(self, hold: H) -> None:
        """Put back a hold that could not be ended, for another try."""
        self._holds.insert(0, hold)  # older than every hold that was taken since
