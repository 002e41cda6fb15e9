"""The databases of a quorum: how all of them are asked, and which of them answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..errors import ConnectTimeout, DBLockError, OutcomeUnknown, SocketTimeout, Unavailable
from ..protocol.ballot import majority
from .fan import Fan, Mailbox

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..io.runtime import Runtime
    from ..policy import Timeouts

T = TypeVar("T")


class Databases:
    """Independent databases, each with a name for people."""

    def __init__(self, databases: Sequence[Database], names: Sequence[str], fan: Fan) -> None:
        self.databases = databases
        self.names = names
        self.fan = fan
        #: Members that did not answer in time the last time. No verdict waits for them.
        self.suspects: set[int] = set()
        self.closed = False

    def check_open(self) -> None:
        if self.closed:
            raise ValueError("this Quorum is closed")

    @property
    def runtime(self) -> Runtime:
        return self.databases[0].runtime

    @property
    def timeouts(self) -> Timeouts:
        return self.databases[0].timeouts

    @property
    def majority(self) -> int:
        return majority(len(self.databases))

    def order(self, name: str) -> list[int]:
        """Return the members in the order in which waiters wait for a name: the same for all
        processes, whatever the order of their targets."""
        places = self.identities()

        def rank(number: int) -> bytes:
            identity = places.get(number)
            if identity is None:
                return b"\xff" * 9  # it was never reached: the last
            return hashlib.blake2b(f"{identity} {name}".encode(), digest_size=8).digest()

        return sorted(range(len(self.databases)), key=rank)

    def identities(self) -> dict[int, str]:
        return {
            number: database.dialect.place.identity
            for number, database in enumerate(self.databases)
            if database.dialect.place is not None
        }

    # --- asking all --------------------------------------------------------------------------

    def ask_all(self, ask: Callable[[int], T], *, patient: bool = False) -> list[T | DBLockError]:
        """Return what ``ask`` returns for each member, or its error.

        Once a majority has answered, only a ``patient`` caller waits for members that were silent
        the last time.
        """
        return self.ask(range(len(self.databases)), ask, patient=patient)

    def ask_majority(self, ask: Callable[[int], T], name: str | None = None) -> tuple[list[T], int]:
        """Return the members' answers, and how many gave none; wait for no silent member.

        Raises Unavailable, for the lock ``name``, if no majority answers.
        """
        outcomes = self.ask_all(ask)
        errors = [one for one in outcomes if isinstance(one, DBLockError)]
        answers = [one for one in outcomes if not isinstance(one, DBLockError)]
        if len(answers) < self.majority:
            raise self.unreachable(errors, name)
        return answers, len(errors)

    def ask(
        self, numbers: Sequence[int], ask: Callable[[int], T], *, patient: bool = False
    ) -> list[T | DBLockError]:
        """Do as ``ask_all`` does, for some members."""
        self.check_open()
        mailbox: Mailbox[T | DBLockError] = Mailbox(self.runtime)
        for number in numbers:
            self.fan.begin(number, partial(self._post, mailbox, number, ask))
        outcomes: dict[int, T | DBLockError] = {}
        until = self.runtime.now() + self.timeouts.connect
        while len(outcomes) < len(numbers):
            good = sum(not isinstance(one, DBLockError) for one in outcomes.values())
            away = set(numbers) - outcomes.keys() <= self.suspects
            if away and good >= self.majority and not patient:
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
