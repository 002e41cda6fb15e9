"""The members of a quorum: their databases, which of them answer, and which of them vote."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import (
    ConnectTimeout,
    DBLockError,
    LockLost,
    OutcomeUnknown,
    SocketTimeout,
    Unavailable,
    Unsupported,
)
from ..protocol import membership, overview, renew
from ..protocol.ballot import majority
from ..protocol.faults import Fault, StatementError
from ..protocol.renew import Asked, RenewalFailed, Renewed
from ..protocol.term import Term
from .fan import Fan, Mailbox

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..holding.callers import CallerRegistry
    from ..holding.database import Database
    from ..holding.keeper import Keeper
    from ..io.runtime import Runtime
    from ..policy import Timeouts
    from ..protocol.state import Member

T = TypeVar("T")

# Seconds between two looks at members that refused a vote although the name was free.
LOOK_EVERY = 1.0
# The steps from no record to a vote: none, new, joined.
STEPS = 4


class MemberStatus(NamedTuple):
    """A member of a quorum, as :meth:`.Quorum.check` finds it.

    ``state`` is ``"votes"``; ``"pauses"`` after it was started again or restored, for ``seconds``
    more, or until others answer; ``"restarted"`` if it was started again and does not pause yet;
    ``"new"`` before the first use; ``"away"`` if it does not answer, with the ``error``.
    """

    member: str
    state: str
    seconds: float = 0.0
    error: DBLockError | None = None


class Members:
    """The databases of one quorum. To the keeper and to the handles it is one database."""

    def __init__(
        self,
        databases: Sequence[Database],
        names: Sequence[str],
        fan: Fan,
        keeper: Callable[[], Keeper],
        callers: CallerRegistry,
    ) -> None:
        self.databases = databases
        self.names = names
        self.fan = fan
        self.keeper = keeper
        self.callers = callers
        #: The list of the members as their records have it; None before the first use.
        self.listed: str | None = None
        #: Members that did not answer in time the last time. No verdict waits for them.
        self.suspects: set[int] = set()
        #: The longest TTL that a majority has recorded, as far as this process knows.
        self._longest = 0.0
        self._look_at = float("inf")

    @property
    def kept(self) -> Members:
        return self

    @property
    def runtime(self) -> Runtime:
        return self.databases[0].runtime

    @property
    def dialect(self) -> Dialect:
        """The dialect of a member, for the timeouts, which all have."""
        return self.databases[0].dialect

    @property
    def timeouts(self) -> Timeouts:
        return self.databases[0].timeouts

    @property
    def majority(self) -> int:
        return majority(len(self.databases))

    def order(self, name: str) -> list[int]:
        """Return the members in the order in which waiters wait for a name: the same for all
        processes, whatever the order of their targets."""
        places = self._identities()

        def rank(number: int) -> bytes:
            identity = places.get(number)
            if identity is None:
                return b"\xff" * 9  # it was never reached: the last
            return hashlib.blake2b(f"{identity} {name}".encode(), digest_size=8).digest()

        return sorted(range(len(self.databases)), key=rank)

    def _identities(self) -> dict[int, str]:
        return {
            number: database.dialect.place.identity
            for number, database in enumerate(self.databases)
            if database.dialect.place is not None
        }

    # --- asking all --------------------------------------------------------------------------

    def ask_all(self, ask: Callable[[int], T]) -> list[T | DBLockError]:
        """Return what ``ask`` returns for each member, or its error."""
        return self._ask(range(len(self.databases)), ask)

    def _ask(self, numbers: Sequence[int], ask: Callable[[int], T]) -> list[T | DBLockError]:
        """Do as ``ask_all`` does, for some members."""
        mailbox: Mailbox[T | DBLockError] = Mailbox(self.runtime)
        for number in numbers:
            self.fan.begin(number, partial(self._post, mailbox, number, ask))
        outcomes: dict[int, T | DBLockError] = {}
        until = self.runtime.now() + self.timeouts.connect
        while len(outcomes) < len(numbers):
            good = sum(not isinstance(one, DBLockError) for one in outcomes.values())
            away = set(numbers) - outcomes.keys() <= self.suspects
            if away and good >= self.majority:
                break
            came = mailbox.next(until - self.runtime.now())
            if came is None:
                self.suspects |= set(numbers) - outcomes.keys()
                break
            outcomes[came[0]] = came[1]
        return [
            outcomes[number] if number in outcomes else self.silent(number) for number in numbers
        ]

    def _post(
        self, mailbox: Mailbox[T | DBLockError], number: int, ask: Callable[[int], T]
    ) -> None:
        outcome = self.attempt(partial(ask, number))
        self.heard(number, outcome)
        mailbox.put(number, outcome)

    def heard(self, number: int, outcome: object) -> None:
        """Note whether a member has answered, by the outcome of its work. Its silence may be told
        by its own timeout, before the caller's."""
        if isinstance(outcome, ConnectTimeout | SocketTimeout):
            self.suspects.add(number)
        elif not isinstance(outcome, Unavailable | OutcomeUnknown):
            self.suspects.discard(number)

    def attempt(self, work: Callable[[], T]) -> T | DBLockError:
        """Return what the work returns, or the error that it raises."""
        try:
            return work()
        except DBLockError as error:
            error.__traceback__ = None  # its frames would keep the caller's handle alive
            return error
        except Exception as error:
            # ValueError: a member is closed, or its URL is unusable.
            return Unavailable(f"{type(error).__name__}: {error}")

    def rest(self) -> None:
        """Wait until the work at the members has ended: a release returns at a majority of answers.
        No silent member is waited for."""
        until = self.runtime.now() + self.timeouts.connect
        for number in range(len(self.databases)):
            if number not in self.suspects:
                self.fan.rest(number, until - self.runtime.now())

    def silent(self, number: int) -> Unavailable:
        """Return the error for a member that did not answer in time."""
        return Unavailable(
            f"{self.names[number]} did not answer within {self.timeouts.connect:g} s"
        )

    # --- the members that vote ---------------------------------------------------------------

    def prepare(self, ttl: float) -> str:
        """Return the list of the members, once they vote for leases of ``ttl`` seconds."""
        if self.listed is None or ttl > self._longest or self.runtime.now() >= self._look_at:
            self.settle(ttl)
        assert self.listed is not None
        return self.listed

    def allow(self, ttl: float, name: str) -> None:
        """Let a majority record that leases may last for ``ttl`` seconds: a member that forgets a
        lease pauses for that long. Raises Unavailable if that is not possible."""
        if ttl > self._longest:
            self.settle(ttl)
        if ttl > self._longest:
            raise Unavailable(
                f"no majority of the {len(self.databases)} databases could record that leases may "
                f"last for {ttl:g} s",
                name=name,
            )

    def look_soon(self) -> None:
        """Look at the members again before the next attempt: one has refused a free name."""
        self._look_at = min(self._look_at, self._looked_at + LOOK_EVERY)

    _looked_at = 0.0

    def settle(self, ttl: float) -> bool:
        """Let members vote that may: record the list, the TTL, the end of a pause; return whether
        that changed anything.

        Raises ValueError if the members belong to another quorum.
        """
        changed = False
        self._looked_at, self._look_at = self.runtime.now(), float("inf")
        for _ in range(STEPS):
            views, listed = self.read()
            numbers = range(len(views))
            steps = [membership.next_step(listed, views, number, ttl) for number in numbers]
            if not any(steps):
                break
            changed = True
            # A member without a change is not asked: it may be silent, and has to stay a suspect.
            changes = {number: step for number, step in enumerate(steps) if step is not None}
            self._ask(list(changes), partial(self._rewrite, changes))
        self.listed = listed
        recorded = sum(view is not None and view.longest >= round(ttl * 1000) for view in views)
        if recorded >= self.majority:
            self._longest = max(self._longest, ttl)
        if any(view is None or view.opens > 0 for view in views):
            self.look_soon()
        return changed

    def read(self) -> tuple[list[Member | None], str]:
        """Return the record of each member that answers, and the list of the members."""
        answers = self.ask_all(self._read)
        views = [None if isinstance(one, DBLockError) else one for one in answers]
        if sum(view is not None for view in views) < self.majority:
            raise self.unreachable([one for one in answers if isinstance(one, DBLockError)])
        return views, self._recognise(views, answers)

    def _read(self, number: int) -> Member:
        database = self.databases[number]
        return database.run(membership.read(database.exchange(wait=0.0)))

    def _rewrite(self, changes: Mapping[int, membership.Rewrite], number: int) -> None:
        database = self.databases[number]
        database.run(membership.rewrite(database.exchange(), changes[number]))

    def _recognise(
        self, views: Sequence[Member | None], answers: Sequence[Member | DBLockError]
    ) -> str:
        """Return the list of the members, after a check that these are the members."""
        marks: dict[object, int] = {}
        for number, view in enumerate(views):
            place = self.databases[number].dialect.place
            if view is None:
                continue
            if place is None:
                raise Unsupported(
                    f"the tables of {self.names[number]} have no identity: run `dblock upgrade`"
                )
            other = marks.setdefault(place.mark, number)
            if other != number:
                raise ValueError(
                    f"{self.names[other]} and {self.names[number]} are the same set of tables: a "
                    "quorum needs independent databases"
                )
        found = self._identities()
        lists = {membership.listed(view) for view in views if view is not None} - {None}
        if not lists:
            if len(found) < len(views):
                failed = [one for one in answers if isinstance(one, DBLockError)]
                raise Unavailable(
                    "the first use of a quorum needs all its members, which record the list of "
                    f"them: {failed[0]}"
                ) from failed[0]
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

    def unreachable(self, errors: Sequence[DBLockError], name: str | None = None) -> DBLockError:
        """Return the error for an attempt that reached no majority."""
        unknown = [error for error in errors if isinstance(error, OutcomeUnknown)]
        if len(unknown) >= self.majority:
            return unknown[0]
        for error in errors:
            if not isinstance(error, Unavailable | OutcomeUnknown):
                return error  # SchemaMissing, for example: an operator has to act
        first = errors[0] if errors else None
        away = Unavailable(
            f"no majority of the {len(self.databases)} databases could be asked: {first}", name=name
        )
        away.__cause__ = first
        return away

    def held(self, name: str) -> bool:
        """Whether a majority shows a lease on a name."""

        def ask(number: int) -> bool:
            database = self.databases[number]
            row = database.run(overview.show_row(database.exchange(name)))
            return row is not None and row.held

        answers = self.ask_all(ask)
        errors = [one for one in answers if isinstance(one, DBLockError)]
        if len(answers) - len(errors) < self.majority:
            raise self.unreachable(errors, name)
        return sum(one is True for one in answers) >= self.majority

    # --- renewing ----------------------------------------------------------------------------

    def renew_all(self, asked: Sequence[Asked], within: float) -> Sequence[Renewed]:
        """Renew holds at all members; return when a majority has answered for each.

        A new term begins before the first member was asked.
        """
        start = self.runtime.now()
        mailbox: Mailbox[Sequence[Renewed] | DBLockError] = Mailbox(self.runtime)

        def ask(number: int) -> Sequence[Renewed]:
            database = self.databases[number]
            outcomes, _ = database.run(renew.renew_all(database.dialect, asked, within))
            return outcomes

        numbers = range(len(self.databases))
        for number in numbers:
            self.fan.begin(number, partial(self._post, mailbox, number, ask))
        came: dict[int, Sequence[Renewed]] = {}
        until = start + within
        while True:
            found = [
                self._renewed(start, one, [outcomes[place] for outcomes in came.values()])
                for place, one in enumerate(asked)
            ]
            if len(came) == len(numbers) or not any(
                isinstance(outcome, RenewalFailed) for outcome in found
            ):
                return found
            letter = mailbox.next(until - self.runtime.now())
            if letter is None:
                self.suspects |= set(numbers) - came.keys()
                return found
            number, outcome = letter
            if isinstance(outcome, DBLockError):
                failure = RenewalFailed(StatementError(Fault.UNREACHABLE, str(outcome)))
                outcome = [failure] * len(asked)
            came[number] = outcome

    def _renewed(self, start: float, asked: Asked, outcomes: Sequence[Renewed]) -> Renewed:
        """Return the outcome of one hold's renewal, from the outcomes that came."""
        if sum(isinstance(one, Term) for one in outcomes) >= self.majority:
            return Term(start, asked.renewal.ttl)
        losses = [one for one in outcomes if isinstance(one, LockLost)]
        if len(losses) > len(self.databases) - self.majority:
            return losses[0]
        failed = [one for one in outcomes if isinstance(one, RenewalFailed)]
        return (
            failed[0]
            if failed
            else RenewalFailed(StatementError(Fault.UNREACHABLE, "no majority has answered"))
        )
