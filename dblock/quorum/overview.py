"""What a majority of the members says about a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..arguments import LIMIT_MAX
from ..protocol import overview, release

if TYPE_CHECKING:
    from ..lock_state import LockState
    from .members import Members


def show(members: Members, name: str) -> LockState:
    """Return the state of a name that a majority shows; see :meth:`.Quorum.show`."""

    def ask(number: int) -> LockState:
        database = members.databases[number]
        return database.run(overview.show(database.exchange(name), LIMIT_MAX))

    return merged(members, *members.ask_majority(ask))


def list_all(members: Members) -> list[LockState]:
    """Return the names that any member lists, sorted by name; see :meth:`.Quorum.list`."""

    def ask(number: int) -> list[LockState]:
        database = members.databases[number]
        return database.run(overview.look_at_all(database.exchange()))

    found: dict[str, list[LockState]] = {}
    answers, away = members.ask_majority(ask)
    for states in answers:
        for state in states:
            found.setdefault(state.name, []).append(state)
    return [merged(members, found[name], away) for name in sorted(found)]


def merged(members: Members, states: Sequence[LockState], away: int) -> LockState:
    """Return one state for a name: its holder, if a majority may have it; else its state at the
    member with the largest fence, without a holder there.

    ``away`` is the number of members that do not answer: each may have the holder too. The name's
    waiters are in the queues of single members.
    """
    waiters = tuple(waiter for state in states for waiter in state.waiters)
    return replace(_majority(members, states, away), waiters=waiters)


def _majority(members: Members, states: Sequence[LockState], away: int) -> LockState:
    by_fence = sorted(states, key=lambda state: state.fence, reverse=True)
    for state in by_fence:
        alike = [one for one in by_fence if one.held and one.owner == state.owner]
        if state.held and len(alike) + away >= members.majority:
            # A member that votes again has raised its fences: a majority has this one.
            return alike[min(len(alike), members.majority) - 1]
    free = [state for state in by_fence if not state.held]
    return (free or by_fence)[0]


def force(members: Members, name: str) -> bool:
    """Free a name at all members; return whether a majority had a holder, or may have had one."""

    def ask(number: int) -> bool:
        database = members.databases[number]
        exchange = database.exchange(name, timeout=database.timeouts.query)
        return database.run(release.force(exchange, None))

    answers, away = members.ask_majority(ask)
    return any(answers) and sum(answers) + away >= members.majority
