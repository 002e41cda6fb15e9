"""Moves the application's locks into the test's database, with all handles made from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..locks import Locks
from .database import SimulatedDatabase
from .process import Process, SimulatedHolds, SimulatedRuntime

T = TypeVar("T")


def stand_in(
    process: Process,
    locks: Locks,
    runtime_of: type[SimulatedRuntime] = SimulatedRuntime,
    holds_of: type[SimulatedHolds] = SimulatedHolds,
) -> Callable[[], None]:
    """Move the locks of a process into the test's database; return a function that undoes it.

    Their handles refer to the database and its runtime. So it replaces these two in place.
    """
    database, runtime = locks._database, locks._database.runtime
    _refuse_held(locks)
    usual, counting = _twin(database), _twin(locks)
    counting._database = usual
    callers = holds_of(database.callers)
    simulated = runtime_of(process, callers)
    made = SimulatedDatabase(process, simulated, callers, usual)
    # The keeper's work runs in the caller that moves the clock, in an event loop or not. So it has
    # a sync database of its own.
    made.kept = SimulatedDatabase(process, SimulatedRuntime(process), callers, usual)
    ends = [_become(runtime, simulated), _become(database, made)]
    # A counter locks nothing: it works in the user's own table, so it is not moved.
    vars(locks)["counter"] = counting.counter
    # Nor is a call that is made once: its record is in the user's transaction.
    vars(locks)["once"] = counting.once

    def stop() -> None:
        made.kept.close()
        made.close()
        vars(locks).pop("counter")
        vars(locks).pop("once")
        for end in ends:
            end()

    return stop


def _refuse_held(locks: Locks) -> None:
    database = locks._database
    if isinstance(database, SimulatedDatabase):
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


def _become(one: object, other: object) -> Callable[[], None]:
    """Turn an object into another in place; return a function that undoes it."""
    before = one.__class__, one.__dict__

    def undo() -> None:
        one.__class__, one.__dict__ = before

    one.__class__, one.__dict__ = other.__class__, other.__dict__
    return undo
