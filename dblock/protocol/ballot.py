"""One attempt to take a name at a majority of independent databases, without I/O and without a
clock.

::

    Pending ── a majority has granted ── the fences agree ──────────────────────────> Holding
       │                          └───── they do not ── Stamp ── a majority has F ──> Holding
       ├── a majority cannot grant any more, since others have the name ────────────> Split
       └── a majority cannot be reached ────────────────────────────────────────────> Unreachable

F is the largest fence of a majority of votes. Each of them is above the fence that its database
had, and two majorities have a database in common. So F is above the fence of every earlier hold,
once a majority has it: then no later attempt can end with a smaller one. The grant of a queue is a
vote after its stamp: its database may have forgotten fences. Until then F is found out anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import DBLockError
from .attempt import Attempt
from .commands import Command, Stamp, Vote
from .exchange import Exchange
from .faults import StatementError
from .lease import Held, LeaseRequest, Refused
from .release import give_back
from .state import Granted, Queued
from .steps import Procedure


def majority(size: int) -> int:
    """Return how many of ``size`` databases are a majority."""
    return size // 2 + 1


@dataclass(eq=False)
class Voting(Attempt):
    """The progress of one try at one database, which refuses it unless it votes."""

    members: str = ""

    def statement(self, ticket: str | None) -> Command[Granted | Queued | None]:
        request = self.request
        return Vote(request.name, request.token, request.owner, request.ttl, self.members)


def vote(exchange: Exchange, request: LeaseRequest, members: str) -> Procedure[Held | Refused]:
    """Ask one database for its vote, once. It settles a lost reply as any attempt does.

    Raises OutcomeUnknown if the database may have granted the name and could not be asked.
    """
    attempt = Voting(exchange, request, members=members)
    held = yield from attempt.run(None)
    if held is not None:
        return held
    if attempt.unsure:
        lost = attempt.doubt is not None
        prevented = yield from give_back(exchange, request, lost=lost)
        if prevented is not None:
            raise attempt.unknown(prevented) from prevented
    return Refused(attempt.seen.state, attempt.closed)


def stamp(exchange: Exchange, request: LeaseRequest, fence: int, members: str) -> Procedure[bool]:
    """Raise the fence of a grant to ``fence``; return whether the token holds the name with it.

    The statement can be repeated.
    """
    command = Stamp(request.name, request.token, fence, members, request.ttl)
    try:
        reply = yield from exchange.ask(command)
    except StatementError as failure:
        raise exchange.explain(failure, harmless=True) from failure.__cause__
    return reply.answer == 1


class Stamping(NamedTuple):
    """These members are to raise their fences to ``fence``."""

    fence: int
    members: tuple[int, ...]


class Holding(NamedTuple):
    """A majority has the token, with ``fence`` or more. ``held`` has the term that ends first."""

    held: Held


class Pending(NamedTuple):
    """More outcomes are needed."""


class Split(NamedTuple):
    """Others have the name, and no majority of the members is left. ``refused`` is the refusal
    that most members agree on."""

    refused: Refused


class Unreachable(NamedTuple):
    """No majority of the members could be asked. ``errors`` are the failures."""

    errors: tuple[DBLockError, ...]


Verdict = Stamping | Holding | Pending | Split | Unreachable


@dataclass(eq=False)
class Ballot:
    """The outcomes of one attempt at ``size`` members, and what follows from them.

    A later outcome of a member replaces its earlier one: a member that failed to answer in time may
    grant the name later.
    """

    size: int
    grants: dict[int, Held] = field(default_factory=dict)
    refusals: dict[int, Refused] = field(default_factory=dict)
    failures: dict[int, DBLockError | None] = field(default_factory=dict)
    #: The members whose grants count only after they were stamped: a queue granted the name there.
    unproven: set[int] = field(default_factory=set)
    #: The hold's fence, once a majority has voted.
    fence: int | None = None
    #: The members that were asked to raise their fences, and have not answered.
    asked: set[int] = field(default_factory=set)

    def granted(self, member: int, held: Held, *, proven: bool = True) -> None:
        """Note a grant. A grant that is not ``proven`` may come from a member that does not vote:
        it counts after its stamp."""
        self._forget(member)
        self.grants[member] = held
        if not proven:
            self.unproven.add(member)

    def refused(self, member: int, refused: Refused) -> None:
        self._forget(member)
        self.refusals[member] = refused

    def failed(self, member: int, error: DBLockError | None) -> None:
        """Note that a member could not be asked, or is not counted on."""
        self._forget(member)
        self.failures[member] = error

    def stamped(self, member: int, fence: int) -> None:
        """Note that a member has the token with ``fence``."""
        self.asked.discard(member)
        self.unproven.discard(member)
        if member in self.grants:
            self.grants[member] = self.grants[member]._replace(fence=fence)

    def _forget(self, member: int) -> None:
        self.asked.discard(member)
        self.unproven.discard(member)
        for outcomes in (self.grants, self.refusals, self.failures):
            outcomes.pop(member, None)

    @property
    def unanswered(self) -> set[int]:
        """The members that have not answered, or not whether they have raised their fences."""
        known = self.grants.keys() | self.refusals.keys() | self.failures.keys()
        return (set(range(self.size)) - known) | self.asked

    def begin_again(self) -> set[int]:
        """Forget the refusals and the failures; return the members that have not granted the
        name."""
        self.refusals.clear()
        self.failures.clear()
        return set(range(self.size)) - self.grants.keys()

    def verdict(self) -> Verdict:
        """Return what follows from the outcomes so far. A stamp is asked for once."""
        needed = majority(self.size)
        if len(self.grants) >= needed:
            fence = self.fence
            if fence is None:
                fence = max(held.fence for held in self.grants.values())
                if len(self.grants) - len(self.unproven) >= needed:
                    self.fence = fence
            good = [
                held
                for member, held in self.grants.items()
                if held.fence >= fence and member not in self.unproven
            ]
            if len(good) >= needed:
                first = min(good, key=lambda held: held.term.deadline)
                return Holding(Held(fence, first.term, contended=True))
            behind = [
                member
                for member, held in self.grants.items()
                if member not in self.asked and (held.fence < fence or member in self.unproven)
            ]
            if behind:
                self.asked.update(behind)
                return Stamping(fence, tuple(behind))
            return Pending()
        left = self.size - len(self.refusals) - len(self.failures)
        if left >= needed:
            return Pending()
        if len(self.failures) > self.size - needed or not self.refusals:
            return Unreachable(tuple(one for one in self.failures.values() if one is not None))
        return Split(self._refusal())

    def _refusal(self) -> Refused:
        """Return the refusal with the holder that most members name."""
        known = [one for one in self.refusals.values() if one.state is not None and one.state.held]
        if not known:
            return max(self.refusals.values(), key=lambda one: one.pause)
        tokens = Counter(one.state.token for one in known if one.state is not None)
        (token, _), *_ = tokens.most_common(1)
        return next(one for one in known if one.state is not None and one.state.token == token)
