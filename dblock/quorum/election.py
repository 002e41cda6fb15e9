"""Election over a quorum: the leader holds the name, and its value, at a majority of databases.

The values of one term are numbered. A member's value never gets a smaller number, since one thread
at a time writes there, and it writes the newest value. A value that a majority has is in the
answers of every majority, so an observer takes the value with the largest number.

A term is known by its token, and so are its values: the members number their fences each on its
own, and a member that votes again after a pause has raised them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import DBLockError, LockLost, OutcomeUnknown
from ..handles.election import Election, Leadership, Observation
from ..io.process_lock import lock
from ..protocol import election
from ..protocol.doubt import Doubt
from .fan import Mailbox
from .lease import HeldAtMajority

if TYPE_CHECKING:
    from ..holding.lease_hold import LeaseHold
    from ..lock_state import Leader
    from ..protocol.state import LeaderRow
    from .lease import QuorumLease
    from .members import Members

T = TypeVar("T", int, float)

#: The number of a value, and the outcome of its write at a member: the number too, or the error.
Written = tuple[int, int | DBLockError]


class LeaderValues:
    """The values of one term, and their way to the members."""

    def __init__(self, members: Members, hold: LeaseHold) -> None:
        self._members = members
        self._hold = hold
        #: The newest value: its number, its text, and the moment after which nothing is retried.
        self._newest = (0, "null", 0.0)
        #: The members at which a thread writes.
        self._writing: set[int] = set()
        #: At each member, the writes without a reply.
        self._unknown = [Doubt() for _ in members.databases]
        self._mailboxes: list[Mailbox[Written]] = []

    def write(self, text: str, patience: float) -> list[int | DBLockError]:
        """Write a value at all members; return the outcomes that came until a majority has it, no
        majority can have it, or ``patience`` is over."""
        members = self._members
        mailbox: Mailbox[Written] = Mailbox(members.runtime)
        until = members.runtime.now() + patience
        with lock:
            number = self._newest[0] + 1
            self._newest = (number, text, until)
            self._mailboxes.append(mailbox)
            idle = [one for one in range(len(members.databases)) if one not in self._writing]
            self._writing.update(idle)
        outcomes: dict[int, int | DBLockError] = {}
        try:
            while idle:
                members.fan.begin(idle[-1], partial(self._write, idle[-1]))
                idle.pop()
            while not self._decided(outcomes):
                letter = mailbox.next(until - members.runtime.now())
                if letter is None:
                    break
                member, (tried, outcome) = letter
                if tried >= number:  # a newer value in its place is as good
                    outcomes[member] = outcome
        finally:
            with lock:
                self._mailboxes.remove(mailbox)
                self._writing.difference_update(idle)  # an interrupt: no thread writes there
        return list(outcomes.values())

    def _decided(self, outcomes: dict[int, int | DBLockError]) -> bool:
        members, written = self._members, sum(isinstance(one, int) for one in outcomes.values())
        left = len(members.databases) - len(outcomes)
        return written >= members.majority or written + left < members.majority

    def _write(self, member: int) -> None:
        """Write the newest value at a member, until there is no newer one."""
        written = 0
        while True:
            with lock:
                number, text, until = self._newest
                if number == written:
                    self._writing.discard(member)
                    return
            outcome = self._members.attempt(partial(self._write_one, member, number, text, until))
            self._members.heard(member, outcome)
            written = number
            with lock:
                mailboxes = list(self._mailboxes)
            for mailbox in mailboxes:
                mailbox.put(member, (number, outcome))

    def _write_one(self, member: int, number: int, text: str, until: float) -> int:
        hold, database = self._hold, self._members.databases[member]
        patience = max(0.0, until - database.runtime.now())
        unknown = self._unknown[member]
        exchange = database.exchange(hold.name, timeout=patience)
        value = f'["{hold.token}", {number}, {text}]'
        database.run(
            election.proclaim(exchange, hold.token, lambda: hold.lease, value, unknown),
            orphaned=unknown.sessions,
        )
        return number


class QuorumLeadership(HeldAtMajority, Leadership):
    """One term of a leader at a majority of databases, made by :meth:`Election.campaign`.

    Use it as you use a :class:`Leadership`. It has no guard, as a :class:`QuorumLease` has none.
    """

    def __init__(self, lease: QuorumLease) -> None:
        super().__init__(lease)
        self._values: LeaderValues | None = None

    def _write_value(self, hold: LeaseHold, value: str, patience: float) -> None:
        members = self._members
        with lock:
            if self._values is None:
                self._values = LeaderValues(members, hold)
        outcomes = self._values.write(value, patience)
        written = sum(isinstance(one, int) for one in outcomes)
        if written >= members.majority:
            return
        losses = [one for one in outcomes if isinstance(one, LockLost)]
        if len(losses) > len(members.databases) - members.majority:
            raise losses[0]
        errors = [one for one in outcomes if isinstance(one, DBLockError)]
        silent = len(members.databases) - len(outcomes)
        if written or silent or any(isinstance(one, OutcomeUnknown) for one in errors):
            raise OutcomeUnknown(
                f"the value of {self.name!r} may be at some of the databases: {written} have "
                f"confirmed it, and it takes {members.majority}. Proclaim it again",
                name=self.name,
            )
        raise members.unreachable(errors, self.name)

    def _announce(self) -> None:
        """Do nothing: the observers of a quorum poll, and a new term has no value."""

    def _notify_observers(self) -> None:
        """Do nothing."""


class QuorumElection(Election):
    """An election at a majority of databases, made by :meth:`Quorum.election`.

    Use it as you use an :class:`Election`. Its observers poll.
    """

    term_class = QuorumLeadership

    def leader(self) -> Leader | None:
        """Return the current leader, or None. One round trip to all databases at once.

        The leader is the holder that a majority shows. While some databases do not answer, it is
        the holder that may have a majority. Raises Unavailable if no majority answers.
        """
        return read_leader(cast("Members", self._database), self.name)

    def _observation(self, interval: float) -> Observation:
        return QuorumObservation(cast(Any, self._database), self.name, interval)


class QuorumObservation(Observation):
    """An endless iterator over the leaders at a majority of databases."""

    def _listen(self) -> None:
        """Do nothing: it polls."""

    def __next__(self) -> Leader | None:
        members = cast("Members", self._database)
        while True:
            found = read_leader(members, self._name)
            seen = election.seen(found)
            if seen != self._before:
                self._before = seen
                return found
            rest = self._interval
            if found is not None:
                rest = min(rest, max(election.SOON, found.remaining))
            members.runtime.sleep(rest)


def read_leader(members: Members, name: str) -> Leader | None:
    """Read the present leader from all members; wait for no silent one.

    Raises Unavailable if no majority answers.
    """

    def ask(number: int) -> LeaderRow | None:
        database = members.databases[number]
        return database.run(election.look(database.exchange(name)))

    answers, away = members.ask_majority(ask, name)
    shown = [one for one in answers if one is not None]
    return leading(shown, away, members.majority)


def leading(shown: Sequence[LeaderRow], away: int, majority: int) -> Leader | None:
    """Return the leader of whom a majority may know, with its newest value; None without one.

    ``shown`` is what members show, ``away`` is the number of members that do not answer. A member
    that has lost the leader's hold may have its newest value: each of ``shown`` counts for that.
    """
    terms: dict[str | None, list[Leader]] = {}
    for row in shown:
        if row.leader is not None:
            terms.setdefault(row.token, []).append(row.leader)
    if not terms:
        return None
    token, leaders = max(
        terms.items(), key=lambda term: (len(term[1]), max(leader.fence for leader in term[1]))
    )
    if len(leaders) + away < majority:
        return None
    # Another program may use the name at one member alone, and have a value of its own there.
    values = [row.value for row in shown if isinstance(row.value, list) and len(row.value) == 3]
    own = [(number, value) for writer, number, value in values if writer == token]
    _, value = max(own, key=itemgetter(0), default=(0, None))

    def at_majority(each: Iterable[T]) -> T:
        """Return the largest of these that a majority reaches."""
        return sorted(each, reverse=True)[min(len(leaders), majority) - 1]

    return replace(
        leaders[0],
        value=value,
        fence=at_majority(leader.fence for leader in leaders),
        # The term is over when fewer than a majority have it.
        remaining=at_majority(leader.remaining for leader in leaders),
    )
