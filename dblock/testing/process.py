"""A process of the test: its keeper, its wire to the database, and its callers' holds."""

from __future__ import annotations

from typing import Any

from ..holding.callers import CallerRegistry
from ..holding.holds import CallerHolds
from ..holding.keeper import Keeper
from ..holding.lease_hold import LeaseHold
from ..io.runtime import Event, Runtime
from .store import Store
from .wire import Wire


class Process:
    """The process under test, or another one."""

    def __init__(self, store: Store, name: str | None = None) -> None:
        self.store = store
        self.name = name
        self.wire = Wire()
        self.staff = store.clock.staff()
        self.keeper = StaffedKeeper(self)

    def alone(self, mine: CallerHolds) -> bool:
        """Whether no other caller in this process holds anything that a caller could wait for."""
        store, own = self.store, [root for root, _ in mine.borrowed()]
        return not (
            any(hold.caller is not mine and hold.alive for hold in self.keeper.holds())
            or store.written
            or any(root.is_active and root not in own for root in store.rows.values())
        )

    def let_pass(self, seconds: float) -> None:
        """Let time pass, because there is nothing to do but wait."""
        self.store.clock.wait(seconds)

    def end(self) -> None:
        """End the process: it drops its holds without releasing them or reporting a loss."""
        self.wire.away = self.staff.dead = True
        for hold in self.keeper.holds():
            hold.ended = True


class StaffedKeeper(Keeper):
    """A keeper that lists its holds. For another process of the test it reports no events here."""

    def __init__(self, process: Process) -> None:
        super().__init__(SimulatedRuntime(process), process.staff.employ)
        self._process = process

    def _tell(self, *event: Any) -> None:
        if self._process.name is None:
            super()._tell(*event)

    def holds(self) -> list[LeaseHold]:
        found = (reference() for reference in list(self._kept))
        return [hold for hold in found if hold is not None]


class SimulatedRuntime(Runtime):
    """The test's time for threads. Put before AsyncioRuntime, it is for tasks.

    A wait for another process of the test, or for a database that it has cut off, only moves the
    clock. A wait for a thread or task of the test is a real wait.
    """

    def __init__(self, process: Process, callers: CallerRegistry | None = None) -> None:
        self._process = process
        self._callers = callers
        self._clock = process.store.clock
        self.now = self._clock.now

    def sleep(self, seconds: float) -> None:
        if self._alone():
            self._process.let_pass(seconds)
        else:
            self._clock.really_wait(lambda: False, super().sleep, seconds)

    def wait(self, event: Event, seconds: float | None) -> bool:
        def pause(seconds: float) -> None:
            super(SimulatedRuntime, self).wait(event, seconds)

        self._clock.really_wait(event.is_set, pause, seconds)
        return event.is_set()

    def _alone(self) -> bool:
        return self._callers is None or self._process.alone(self._callers.mine())


class SimulatedHolds(CallerRegistry):
    """The holds of each caller.

    Only a row lock in dblock's own transaction makes a caller the file's one writer, because the
    user's transactions are in another database than the locks.
    """

    caller = "thread"

    def __init__(self, usual: CallerRegistry) -> None:
        self._usual = usual

    def mine(self) -> CallerHolds:
        return self._usual.mine()

    def refuse_self_wait(self, name: str, wait: float | None, **options: Any) -> Any:
        writes = self.has_row(None, None)
        return super().refuse_self_wait(name, wait, **{**options, "one_writer": writes})

    def has_row(self, within: object, name: str | None) -> bool:
        if name is not None:
            return super().has_row(within, name)
        return any(hold.alive for hold in self.mine().rows)
