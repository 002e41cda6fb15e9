"""The members of a quorum, as the keeper and the handles use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ..errors import DBLockError, LockLost, Unavailable
from ..io.process_lock import lock
from ..protocol import overview, renew
from ..protocol.faults import Fault, StatementError
from ..protocol.renew import Asked, RenewalFailed, Renewed
from ..protocol.term import Term
from .databases import Databases
from .fan import Fan, Mailbox
from .records import Records

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..holding.callers import CallerRegistry
    from ..holding.database import Database
    from ..holding.keeper import Keeper

# A member may still execute an earlier renewal, which would let the lease expire sooner.
_EARLIER = RenewalFailed(StatementError(Fault.UNREACHABLE, "an earlier renewal has no reply yet"))


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


class Members(Databases):
    """The databases of one quorum. To the keeper and to the handles it is one database."""

    def __init__(
        self,
        databases: Sequence[Database],
        names: Sequence[str],
        fan: Fan,
        keeper: Callable[[], Keeper],
        callers: CallerRegistry,
    ) -> None:
        super().__init__(databases, names, fan)
        self.keeper = keeper
        self.callers = callers
        self.records = Records(self)
        #: Of each member, the writes of TTLs without a reply: the TTLs by token.
        self._written: list[list[Mapping[str, float]]] = [[] for _ in databases]

    @property
    def kept(self) -> Members:
        return self

    @property
    def dialect(self) -> Dialect:
        """The dialect of a member, for the timeouts, which all have."""
        return self.databases[0].dialect

    def held(self, name: str) -> bool:
        """Whether a majority has a lease on a name, or may have it."""

        def ask(number: int) -> bool:
            database = self.databases[number]
            row = database.run(overview.show_row(database.exchange(name)))
            return row is not None and row.held

        answers, away = self.ask_majority(ask, name)
        return any(answers) and sum(answers) + away >= self.majority

    # --- renewing ----------------------------------------------------------------------------

    def renew_all(self, asked: Sequence[Asked], within: float) -> Sequence[Renewed]:
        """Renew holds at all members; return when a majority has answered for each.

        A new term begins before the first member was asked.
        """
        start = self.runtime.now()
        mailbox: Mailbox[Sequence[Renewed] | DBLockError] = Mailbox(self.runtime)

        def ask(number: int) -> Sequence[Renewed]:
            database = self.databases[number]
            try:
                outcomes, _ = database.run(renew.renew_all(database.dialect, asked, within))
            finally:
                self.wrote(number, ttls)
            failed = [one for one in outcomes if isinstance(one, RenewalFailed) and one.away]
            if len(failed) == len(outcomes):  # it has not answered: it may stay a suspect
                raise Unavailable(str(failed[0].failure))
            return outcomes

        ttls = {one.renewal.token: one.renewal.ttl for one in asked}
        numbers = range(len(self.databases))
        earlier = [self._under_way(number) for number in numbers]
        for number in numbers:
            self.writes(number, ttls)
            self.fan.begin(number, partial(self._post, mailbox, number, ask))
        came: dict[int, Sequence[Renewed]] = {}
        until = start + within
        while True:
            found = [
                self._renewed(start, one, [outcomes[place] for outcomes in came.values()])
                for place, one in enumerate(asked)
            ]
            renewed = any(isinstance(outcome, Term) for outcome in found)
            failed = any(isinstance(outcome, RenewalFailed) for outcome in found)
            silent = set(numbers) - came.keys()
            # All have answered, or no hold needs another answer. Or some are renewed, and only
            # suspects are left: the keeper tries again for a hold that needs one of these, and the
            # terms of the others are not delayed.
            if not silent or not failed or (renewed and silent <= self.suspects):
                return found
            letter = mailbox.next(until - self.runtime.now())
            if letter is None:
                self.suspects |= silent
                return found
            number, outcome = letter
            if isinstance(outcome, DBLockError):
                failure = RenewalFailed(StatementError(Fault.UNREACHABLE, str(outcome)))
                outcome = [failure] * len(asked)
            came[number] = [
                _EARLIER if earlier[number].get(one.renewal.token, inf) < one.renewal.ttl else each
                for one, each in zip(asked, outcome, strict=True)
            ]

    def writes(self, number: int, ttls: Mapping[str, float]) -> None:
        """Note that a member is asked to let tokens expire after these TTLs."""
        with lock:
            self._written[number].append(ttls)

    def wrote(self, number: int, ttls: Mapping[str, float]) -> None:
        """Note that it will execute that no more."""
        with lock:
            self._written[number].remove(ttls)

    def _under_way(self, number: int) -> dict[str, float]:
        """Return the shortest TTL of each token that a member may still write."""
        found: dict[str, float] = {}
        with lock:
            for ttls in self._written[number]:
                for token, ttl in ttls.items():
                    found[token] = min(ttl, found.get(token, inf))
        return found

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
