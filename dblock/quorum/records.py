"""The records of a quorum's members: which databases they are, and which of them vote."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from ..errors import DBLockError, Unavailable, Unsupported
from ..protocol import membership

if TYPE_CHECKING:
    from ..protocol.lease import Refused
    from ..protocol.state import Member
    from .databases import Databases

# Seconds between two looks at members that refused a vote although the name was free.
LOOK_EVERY = 1.0
# The steps from no record to a vote: none, new, joined.
STEPS = 4
FIRST_USE = "the first use of a quorum needs all its members, which record the list of them"


class Records:
    """What this process knows of the members' records, and how it changes them."""

    def __init__(self, members: Databases) -> None:
        self._members = members
        #: The list of the members as their records have it; None before the first use.
        self._listed: str | None = None
        #: The longest TTL that a majority has recorded, as far as this process knows.
        self.longest = 0.0
        #: When this process has looked at them, when it does so again, and when a majority votes
        #: again.
        self._looked_at, self._look_at, self._opens_at = 0.0, inf, 0.0

    def prepare(self, ttl: float) -> str:
        """Return the list of the members, once they vote for leases of ``ttl`` seconds."""
        if (
            self._listed is None
            or ttl > self.longest
            or self._members.runtime.now() >= self._look_at
        ):
            self.settle(ttl)
        assert self._listed is not None
        return self._listed

    def allow(self, ttl: float, name: str) -> None:
        """Let a majority record that leases may last for ``ttl`` seconds: a member that forgets a
        lease pauses for that long. Raises Unavailable if that is not possible."""
        if ttl > self.longest:
            self.settle(ttl)
        if ttl > self.longest:
            raise Unavailable(
                f"no majority of the {len(self._members.databases)} databases could record that "
                f"leases may last for {ttl:g} s",
                name=name,
            )

    def look_soon(self) -> None:
        """Look at the members again before the next attempt: one has refused a free name."""
        self._look_at = min(self._look_at, self._looked_at + LOOK_EVERY)

    def refusal(self, refused: Refused) -> Refused:
        """Return a refusal with the members' pause, which its text names if it has no holder."""
        held = refused.state is not None and refused.state.held
        if not held and self._members.runtime.now() >= self._look_at:
            with contextlib.suppress(DBLockError):
                self.settle(self.longest)
        pause = self._opens_at - self._members.runtime.now()
        return refused._replace(pause=pause) if pause > refused.pause else refused

    def settle(self, ttl: float) -> None:
        """Let members vote that may: record the list, the TTL, the end of a pause.

        Raises ValueError if the members belong to another quorum; the error of a member's record if
        no majority votes for want of it.
        """
        members = self._members
        failed: list[DBLockError] = []
        self._looked_at, self._look_at = members.runtime.now(), inf
        for _ in range(STEPS):
            views, listed = self.read()
            numbers = range(len(views))
            steps = [membership.next_step(listed, views, number, ttl) for number in numbers]
            if failed or not any(steps):
                break
            # A member without a change is not asked: it may be silent, and has to stay a suspect.
            changes = {number: step for number, step in enumerate(steps) if step is not None}
            answers = members.ask(list(changes), partial(self._rewrite, changes))
            failed = [one for one in answers if isinstance(one, DBLockError)]
        known = [view for view in views if view is not None]
        missing = members.majority - sum(membership.votes(listed, view, ttl) for view in known)
        if failed and missing > 0:
            raise members.unreachable(failed)
        new = any(membership.state_of(listed, view) == membership.NEW for view in known)
        if missing > 0 and new and len(known) < len(views):
            raise Unavailable(f"{FIRST_USE}: one was away before all had begun")
        self._listed = listed
        pauses = sorted(view.opens for view in known if view.opens > 0)
        pause = pauses[missing - 1] if 0 < missing <= len(pauses) else 0.0
        self._opens_at = self._looked_at + pause
        recorded = sum(view is not None and view.longest >= round(ttl * 1000) for view in views)
        if recorded >= members.majority:
            self.longest = max(self.longest, ttl)
        if any(view is None or view.opens > 0 for view in views):
            self.look_soon()

    def read(self, *, patient: bool = False) -> tuple[list[Member | None], str]:
        """Return the record of each member that answers, and the list of the members."""
        members = self._members
        answers = members.ask_all(self.read_one, patient=patient)
        views = [None if isinstance(one, DBLockError) else one for one in answers]
        if sum(view is not None for view in views) < members.majority:
            raise members.unreachable([one for one in answers if isinstance(one, DBLockError)])
        return views, self._recognise(views, answers)

    def read_one(self, number: int) -> Member:
        database = self._members.databases[number]
        return database.run(membership.read(database.exchange(wait=0.0)))

    def _rewrite(self, changes: Mapping[int, membership.Rewrite], number: int) -> None:
        database = self._members.databases[number]
        database.run(membership.rewrite(database.exchange(), changes[number]))

    def _recognise(
        self, views: Sequence[Member | None], answers: Sequence[Member | DBLockError]
    ) -> str:
        """Return the list of the members, after a check that these are the members."""
        members = self._members
        marks: dict[object, int] = {}
        for number, view in enumerate(views):
            place = members.databases[number].dialect.place
            if view is None:
                continue
            if place is None:
                raise Unsupported(
                    f"the tables of {members.names[number]} have no identity: run `dblock upgrade`"
                )
            other = marks.setdefault(place.mark, number)
            if other != number:
                raise ValueError(
                    f"{members.names[other]} and {members.names[number]} are the same set of "
                    "tables: a quorum needs independent databases"
                )
        found = members.identities()
        lists = {membership.listed(view) for view in views if view is not None} - {None}
        if not lists:
            if len(found) < len(views):
                failed = [one for one in answers if isinstance(one, DBLockError)]
                raise Unavailable(f"{FIRST_USE}: {failed[0]}") from failed[0]
            return membership.list_of(list(found.values()))
        listed = lists.pop()
        assert listed is not None
        known = listed.split(",")
        if lists or len(known) != len(views) or not set(found.values()) <= set(known):
            raise ValueError(
                "these databases are members of another quorum, with another list of members: a "
                "name would be two locks. Give the same databases as all other processes do"
            )
        return listed
