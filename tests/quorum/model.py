"""A model of the algorithm, checked in all orders of its events: ``python -m tests.quorum.model``.

It shares no code with dblock, so it checks the idea and not the program. Some processes each make
one attempt at three databases. A statement may be executed at any time after it was sent, or never.
Time passes as it likes, with one limit: a database lets a grant expire only after the term that its
holder counts, which began before. One database may be restored from any older copy.

Two things must never happen: two attempts believe at the same time that they hold the name; and an
attempt holds it with a fence that is no larger than that of an earlier hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import NamedTuple, TypeVar

T = TypeVar("T")

DATABASES = 3
MAJORITY = 2
NOBODY = -1

# What an attempt has at one database: nothing yet, a grant, a grant that is to be stamped, nothing
# any more. Only the row says what an ended attempt still holds. The client may learn of a grant, a
# stamp or a renewal at any later time: so it may act on it later, or never.
SENT, GRANTED, STAMPING, DONE = range(4)
# An attempt.
DECIDING, HOLDING, ENDED = range(3)
# The first database, which may be restored.
WHOLE, PAUSING, REJOINED = range(3)

MUTANTS = {
    "no-stamp": "a majority is enough, whatever fences its grants have",
    "one-stamp": "one grant with the largest fence is enough",
    "early-expiry": "a database lets a grant expire while its holder counts on it",
    "no-cure": "a restored database votes at once",
    "no-pause": "a restored database votes after it has read the others' fences",
    "no-read": "a restored database votes after its pause, with the fences of its copy",
    "reads-too-few": "a restored database reads the fences of one other database",
    "minority-renewal": "one renewal prolongs the term",
}


class Row(NamedTuple):
    """A name's row: ``term`` is the first or the second one of its holder."""

    fence: int = 0
    holder: int = NOBODY
    term: int = 0


class Progress(NamedTuple):
    """What one attempt has at one database: the ``fence`` of its grant or stamp."""

    where: int = SENT
    fence: int = 0
    renewed: bool = False


class Member(NamedTuple):
    """A database: its row, the attempts' progress, and whether a restored one has read it."""

    row: Row
    progress: tuple[Progress, ...]
    read: bool = False


class Attempt(NamedTuple):
    """``fence`` is the hold's, once a majority has voted. ``renews`` says that it has sent its
    renewals, ``over`` that its first term is over. When its last one is, it has ended."""

    phase: int = DECIDING
    fence: int = 0
    renews: bool = False
    term: int = 1
    over: bool = False


class Restored(NamedTuple):
    """``ends`` has, by attempts, the terms that must be over before the pause is. ``fence`` is the
    largest one that was read."""

    phase: int = WHOLE
    copied: bool = False
    copy: Row = Row()
    ends: tuple[int, ...] = ()
    fence: int = 0


class State(NamedTuple):
    members: tuple[Member, ...]
    attempts: tuple[Attempt, ...]
    restored: Restored
    largest: int = 0


class Violation(Exception):
    """What must never happen has happened."""


@dataclass(frozen=True)
class Model:
    """``renewals`` and ``restores`` say whether there are any; ``mutant`` is a planted error."""

    attempts: int = 2
    renewals: bool = False
    restores: bool = False
    mutant: str = ""

    def first(self) -> State:
        member = Member(Row(), (Progress(),) * self.attempts)
        restored = Restored(ends=(0,) * self.attempts)
        return State((member,) * DATABASES, (Attempt(),) * self.attempts, restored)

    def check(self) -> int:
        """Visit all states; return how many there are. Raises Violation."""
        first = self.first()
        seen, left = {first}, [first]
        while left:
            for state in self.steps(left.pop()):
                known = self.canonical(state)
                if known not in seen:
                    seen.add(known)
                    left.append(known)
        return len(seen)

    def canonical(self, state: State) -> State:
        """Return one state for all that differ by the order of attempts or databases alone."""
        fixed = 1 if self.restores else 0
        found = []
        for order in permutations(range(self.attempts)):
            one = _reordered(state, order)
            members = (*one.members[:fixed], *sorted(one.members[fixed:]))
            found.append(one._replace(members=members))
        return min(found)

    def steps(self, state: State) -> Iterator[State]:
        for one in range(self.attempts):
            yield from self._attempt_steps(state, one)
            for number in range(DATABASES):
                yield from self._member_steps(state, one, number)
        if self.restores:
            yield from self._restoring_steps(state)

    # --- a client ----------------------------------------------------------------------------

    def _attempt_steps(self, state: State, one: int) -> Iterator[State]:
        attempt = state.attempts[one]
        if attempt.phase == ENDED:
            return
        yield _ended(state, one)  # it was released, it has failed, or its term is over
        if attempt.term == 2 and not attempt.over:
            yield _with(state, one, attempt._replace(over=True))
        if attempt.phase == DECIDING:
            yield from self._decide(state, one, attempt)
        elif attempt.phase == HOLDING and not attempt.renews and self.renewals:
            yield _with(state, one, attempt._replace(renews=True))
        elif attempt.phase == HOLDING and attempt.term == 1:
            renewed = sum(member.progress[one].renewed for member in state.members)
            if renewed >= (1 if self.mutant == "minority-renewal" else MAJORITY):
                yield _with(state, one, attempt._replace(term=2))

    def _decide(self, state: State, one: int, attempt: Attempt) -> Iterator[State]:
        at = [member.progress[one] for member in state.members]
        granted = [number for number in range(DATABASES) if at[number].where == GRANTED]
        if not attempt.fence:
            for known in (*combinations(granted, MAJORITY), *combinations(granted, DATABASES)):
                fence = max(at[number].fence for number in known)
                yield _with(state, one, attempt._replace(fence=fence))
            return
        good = [number for number in granted if at[number].fence >= attempt.fence]
        needed = {"no-stamp": 0, "one-stamp": 1}.get(self.mutant, MAJORITY)
        if len(good) < needed or len(granted) < (MAJORITY if needed < MAJORITY else 0):
            return
        if attempt.fence <= state.largest:
            raise Violation(f"fence {attempt.fence} after {state.largest}")
        if any(other.phase == HOLDING for other in state.attempts):
            raise Violation("two attempts believe that they hold the name")
        held = _with(state, one, attempt._replace(phase=HOLDING))
        yield held._replace(largest=attempt.fence)

    # --- a statement at a database -----------------------------------------------------------

    def _member_steps(self, state: State, one: int, number: int) -> Iterator[State]:
        attempt, member = state.attempts[one], state.members[number]
        row, progress = member.row, member.progress[one]
        votes, ended = self._votes(state, number), attempt.phase == ENDED
        fits = row.holder == one and row.fence <= attempt.fence
        if progress.where == SENT and votes and self._is_free(state, row):
            fence = row.fence + 1
            told = Progress(DONE) if ended else Progress(GRANTED, fence)
            yield _row(_progress(state, one, number, told), number, Row(fence, one, 1))
        elif progress.where == GRANTED and progress.fence < attempt.fence:
            yield _progress(state, one, number, progress._replace(where=STAMPING))
        elif progress.where == STAMPING and votes and fits:
            fence = attempt.fence
            told = progress._replace(where=GRANTED, fence=fence)
            stamped = _progress(state, one, number, Progress(DONE) if ended else told)
            yield _row(stamped, number, row._replace(fence=fence))
        if row.holder == one and ended:  # it was released or given back, or it has expired
            yield _row(state, number, Row(row.fence))
        if row.holder == one and row.term == 1 and attempt.renews:
            renewed = _progress(state, one, number, progress._replace(renewed=True))
            yield _row(renewed, number, row._replace(term=2))

    def _is_free(self, state: State, row: Row) -> bool:
        """Whether a grant finds the row free: without a holder, or it may have expired."""
        if row.holder == NOBODY or self.mutant == "early-expiry":
            return True
        return row.term == 1 and state.attempts[row.holder].over

    def _votes(self, state: State, number: int) -> bool:
        return number > 0 or state.restored.phase != PAUSING or self.mutant == "no-cure"

    # --- a database that is restored ---------------------------------------------------------

    def _restoring_steps(self, state: State) -> Iterator[State]:
        restored, row = state.restored, state.members[0].row
        if restored.phase == WHOLE:
            if not restored.copied:
                yield state._replace(restored=restored._replace(copied=True, copy=row))
            ends = tuple(_forgotten(one) for one in state.members[0].progress)
            begun = Restored(PAUSING, True, restored.copy, ends)
            yield _row(state, 0, restored.copy)._replace(restored=begun)
        elif restored.phase == PAUSING:
            waits = any(
                end > attempt.over
                for attempt, end in zip(state.attempts, restored.ends, strict=True)
            )
            if waits and self.mutant != "no-pause":
                return
            for number, member in enumerate(state.members):
                if number and not member.read:
                    fence = max(restored.fence, member.row.fence)
                    members = _put(state.members, number, member._replace(read=True))
                    yield state._replace(members=members, restored=restored._replace(fence=fence))
            needed = {"no-read": 0, "reads-too-few": 1}.get(self.mutant, DATABASES - 1)
            if sum(member.read for member in state.members) >= needed:
                raised = row._replace(fence=max(row.fence, restored.fence))
                whole = Restored(REJOINED, True, ends=(0,) * self.attempts)
                members = tuple(member._replace(read=False) for member in state.members)
                yield _row(state._replace(members=members, restored=whole), 0, raised)


def _forgotten(progress: Progress) -> int:
    """Return the last term that the restored database had granted."""
    if progress.where in (SENT, DONE):
        return 0
    return 2 if progress.renewed else 1


def _reordered(state: State, order: tuple[int, ...]) -> State:
    """Return the state in which attempt ``order[n]`` has the number ``n``."""
    number = {old: new for new, old in enumerate(order)} | {NOBODY: NOBODY}

    def renamed(row: Row) -> Row:
        return Row(row.fence, number[row.holder], row.term)

    restored = state.restored
    return State(
        tuple(
            Member(renamed(one.row), tuple(one.progress[old] for old in order), one.read)
            for one in state.members
        ),
        tuple(state.attempts[old] for old in order),
        restored._replace(
            copy=renamed(restored.copy), ends=tuple(restored.ends[old] for old in order)
        ),
        state.largest,
    )


def _put(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _with(state: State, one: int, attempt: Attempt) -> State:
    return state._replace(attempts=_put(state.attempts, one, attempt))


def _row(state: State, number: int, row: Row) -> State:
    member = state.members[number]._replace(row=row)
    return state._replace(members=_put(state.members, number, member))


def _progress(state: State, one: int, number: int, progress: Progress) -> State:
    member = state.members[number]
    changed = member._replace(progress=_put(member.progress, one, progress))
    return state._replace(members=_put(state.members, number, changed))


def _ended(state: State, one: int) -> State:
    """Return the state in which an attempt counts on nothing more. Its statements may still be
    under way, and its rows may still be there: from now on they may be free at any time."""
    stamps = False
    for number, member in enumerate(state.members):
        where = member.progress[one].where
        stamps |= where == STAMPING
        left = Progress(where if where in (SENT, STAMPING) else DONE)
        state = _progress(state, one, number, left)
        if member.row.holder == one:
            state = _row(state, number, member.row._replace(term=1))
    ends = _put(state.restored.ends, one, 0)
    state = state._replace(restored=state.restored._replace(ends=ends))
    return _with(state, one, Attempt(ENDED, state.attempts[one].fence if stamps else 0))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.quorum.model", description=__doc__)
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--renewals", action="store_true")
    parser.add_argument("--restores", action="store_true")
    parser.add_argument("--mutant", choices=MUTANTS, default="")
    given = parser.parse_args()
    try:
        states = Model(given.attempts, given.renewals, given.restores, given.mutant).check()
    except Violation as error:
        print(f"violation: {error}")
        return 1
    print(f"{states:,} states, 0 violations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
