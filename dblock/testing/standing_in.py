"""Moves the application's locks into the test's database, with all handles made from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..locks import Locks
from .database import simulated
from .process import Process, SimulatedHolds, SimulatedRuntime
from .wire import WiredSQLite

T = TypeVar("T")


def stand_in(
    process: Process,
    locks: Locks,
    runtime_of: type[SimulatedRuntime] = SimulatedRuntime,
    holds_of: type[SimulatedHolds] = SimulatedHolds,
) -> Callable[[], None]:
    """Move the locks of a process into the test's database; return a function that undoes it.

    Their handles refer to the database and use its parts. So it replaces these parts.
    """
    database = locks._database
    _refuse_held(locks)
    usual, counting = _twin(database), _twin(locks)
    counting._database = usual
    callers = holds_of(database.callers)
    usual.runtime = runtime_of(process, callers)
    made = simulated(process, usual.runtime, callers, usual)
    # The keeper's work runs in the caller that moves the clock, in an event loop or not. So it has
    # a sync database of its own.
    made.kept = simulated(process, SimulatedRuntime(process), callers, usual)
    end = database.stand_in(made)
    # A counter locks nothing: it works in the user's own table, so it is not moved.
    vars(locks)["counter"] = counting.counter
    # Nor is a call that is made once: its record is in the user's transaction.
    vars(locks)["once"] = counting.once

    def stop() -> None:
        made.kept.close()
        made.close()
        vars(locks).pop("counter")
        vars(locks).pop("once")
        end()

    return stop


def _refuse_held(locks: Locks) -> None:
    database = locks._database
    if isinstance(database.dialect, WiredSQLite):
        raise ValueError(f"{locks!r} are in a test's database already")  # noqa: TRY004
    held = {*database.callers.held()}
    if not database.runtime.lingers:  # else there is a keeper for each loop
        held |= {hold.name for hold in database.keeper()._holds(database)}
    if held:
        names = ", ".join(map(repr, sorted(held)))
        raise ValueError(f"{locks!r} hold {names}: release that first")


def _twin(one: T) -> T:
    """Return a shallow copy of an object."""
    made = object.__new__(type(one))
    vars(made).update(vars(one))
    return made
