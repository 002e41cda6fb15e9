"""Quorum: a majority of independent databases as one lock server."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, cast

from ..arguments import Seconds, check_name
from ..errors import DBLockError, Unsupported
from ..handles.multi import MultiLock
from ..handles.options import TAKEN, ElectionKeywords, LeaseKeywords, lease_options, unknown_option
from ..io.target import address
from ..locks import Locks
from ..protocol import membership
from . import overview
from .election import QuorumElection
from .fan import Fan
from .lease import QuorumLease
from .members import Members, MemberStatus

if TYPE_CHECKING:
    from ..handles.election import Election
    from ..io.target import Target
    from ..lock_state import LockState
    from ..policy import RetryPolicy, Timeouts


class OneDatabase:
    """The methods of Locks that a quorum does not have: they say why, and what to use."""

    def row(self, *_: object, **__: object) -> NoReturn:
        """Raise Unsupported: a row lock is in a transaction of one database."""
        raise unsupported("row", "a row lock is in a transaction of one database")

    def counter(self, *_: object, **__: object) -> NoReturn:
        """Raise Unsupported: a counter is in a table of one database."""
        raise unsupported("counter", "a counter is in a table of one database")

    def once(self, *_: object, **__: object) -> NoReturn:
        """Raise Unsupported: a call that is made once is recorded in one database."""
        raise unsupported("once", "a call that is made once is recorded in one database")

    def shared(self, *_: object, **__: object) -> NoReturn:
        """Raise Unsupported: readers share the row of one database."""
        raise unsupported("shared", "readers share the row of one database")

    def semaphore(self, *_: object, **__: object) -> NoReturn:
        """Raise Unsupported: a semaphore's slots are rows of one database."""
        raise unsupported("semaphore", "a semaphore's slots are rows of one database")

    def rate(self, *_: object, **__: object) -> NoReturn:
        """Raise Unsupported: a rate limit is a row of one database."""
        raise unsupported("rate", "a rate limit is a row of one database")

    def cron(self, *_: object, **__: object) -> NoReturn:
        """Raise Unsupported: the record of a job's runs is in one database."""
        raise unsupported("cron", "the record of a job's runs is in one database")

    def attach(self, *_: object, **__: object) -> NoReturn:
        """Raise Unsupported: a hold at several databases cannot be handed over."""
        raise unsupported("attach", "a hold at several databases cannot be handed over")


def unsupported(method: str, why: str) -> Unsupported:
    """Return the error of a method that a quorum does not have."""
    return Unsupported(
        f"a quorum has no {method}(): {why}. Hold a lease of the quorum, and let "
        "dblock.fencing.gate refuse an old fence in that database"
    )


class Quorum(OneDatabase):
    """The locks at a majority of independent databases.

    ``targets``
        three, five or more databases, an odd number: URLs or SQLAlchemy Engines, of any kinds that
        dblock knows. Each has its own dblock tables. All processes give the same databases, in any
        order: each database records the list at the first use, and refuses another list.

    All other arguments mean the same as for :class:`Locks`, for each of the databases.

    A lease is held while a majority of the databases has it: with three databases one may be away,
    with five two. Its fence grows from hold to hold, whichever majority granted it. Two databases
    that are the same set of tables, and a list that the databases do not know, raise ValueError at
    the first use.

    Creating one does no I/O. Every call may raise Unavailable (no majority can be reached).
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        schema: str | None = None,
        prefix: str = "dblock_",
        label: str | None = None,
        trust_server: bool = False,
    ) -> None:
        given = check_targets(targets)
        make = partial(
            self._locks,
            timeouts=timeouts,
            retry=retry,
            schema=schema,
            prefix=prefix,
            label=label,
            trust_server=trust_server,
        )
        self._made: builtins.list[Locks] = [make(target) for target in given]
        names = [address(locks.engine.url) for locks in self._made]
        check_different(names)
        databases = [locks._database for locks in self._made]
        keeper, callers = databases[0].keeper, databases[0].callers
        for database in databases:  # a waiter in any queue says what it holds: deadlocks are found
            database.callers = callers
        self._targets = given
        self._members = Members(databases, names, self._fan(len(given)), keeper, callers)

    # Overridden by the asyncio subclass.
    _locks: Callable[..., Locks] = Locks
    _fan: Callable[[int], Fan] = Fan

    def __repr__(self) -> str:
        return f"<Quorum of {', '.join(self._members.names)}>"

    @property
    def timeouts(self) -> Timeouts:
        """How long each layer may take. ``connect`` is also how long a silent member is waited
        for, once."""
        return self._members.timeouts

    def lease(self, name: str, **options: Unpack[LeaseKeywords[None]]) -> QuorumLease:
        """Return a lease on ``name`` at a majority of the databases.

        The options mean the same as for :meth:`Locks.lease`. Waiters wait in the queue of one of
        the databases, the same for all processes; which one depends on the name.
        """
        return self._lease("lease", name, options)

    def election(self, name: str, **options: Unpack[ElectionKeywords[None]]) -> Election:
        """Return the election of the leader of ``name`` at a majority of the databases.

        The leader holds the lease on ``name``. The options mean the same as for
        :meth:`Locks.election`. A value that the leader proclaims is at a majority. Observers poll.
        """
        return QuorumElection(self._lease("election", name, options))

    def _lease(self, method: str, name: str, options: Mapping[str, Any]) -> QuorumLease:
        if not options.keys() <= TAKEN[method]:
            raise unknown_option(method, options)
        first = self._made[0]
        given = lease_options(first.retry, first._policy, **options)
        return QuorumLease(self._members, check_name(name), given)

    def all(self, *leases: QuorumLease, wait: Seconds | None = None) -> MultiLock:
        """Return the given leases as one lock.

        dblock takes them in the order of their names, all or none. ``wait`` is one deadline for all
        of them, in seconds.
        """
        members = cast(Any, self._members)  # to a handle, the members are one database
        for lease in leases:
            if not isinstance(lease, QuorumLease) or lease._database is not members:
                raise TypeError(f"all() takes leases of this Quorum, not {lease!r}")
        return MultiLock(leases, wait, members)

    # --- what operators ask for --------------------------------------------------------------

    def check(self) -> builtins.list[MemberStatus]:
        """Return what each database is in this quorum: whether it answers, and whether it votes.

        Raises ValueError if the databases are not the members of one quorum. A member that was
        started again joins again by itself: the next attempts to take a lease see to it.
        """
        members = self._members
        answers = members.ask_all(members.records.read_one, patient=True)
        listed = members.records.read()[1]
        found = []
        for name, answer in zip(members.names, answers, strict=True):
            if isinstance(answer, DBLockError):
                found.append(MemberStatus(name, "away", error=answer))
                continue
            state = membership.state_of(listed, answer)
            seconds = max(0.0, answer.opens)
            shown = {"joined": "votes", "none": "new", membership.PAUSING: "pauses"}
            word = "pauses" if state == "joined" and seconds else shown.get(state, state)
            found.append(MemberStatus(name, word, seconds))
        return found

    def rejoin(self, member: Target | int) -> float:
        """Let a database that was restored from a backup vote again; return the seconds until then.

        ``member`` is one of the targets, or its number from 0. Until the pause is over it grants
        nothing to this quorum. After that the next attempt to take a lease raises its fences above
        the other members', and lets it vote. PostgreSQL shows that a server was started again, and
        needs no call. MariaDB, MySQL and SQLite do not: restore one at an address that no process
        uses yet, call this with a quorum of that address and the others, and then let the database
        take its old place. Its identity is in its tables.
        """
        number = self._number(member)
        members = self._members
        views, listed = members.records.read(patient=True)
        view = views[number]
        if view is None:
            members.records.read_one(number)  # which raises why
            raise members.silent(number)
        longest = max(one.longest for one in views if one is not None)
        database = members.databases[number]
        change = membership.pausing(listed, view, longest)
        database.run(membership.rewrite(database.exchange(), change))
        members.records.look_soon()
        return change.pause

    def _number(self, member: object) -> int:
        if isinstance(member, int) and not isinstance(member, bool):
            if not 0 <= member < len(self._targets):
                raise ValueError(f"the members have numbers from 0: there is no member {member}")
            return member
        for number, target in enumerate(self._targets):
            if target is member or target == member:
                return number
        raise ValueError("this is no member: give one of the targets, or its number from 0")

    def show(self, name: str) -> LockState:
        """Return the state of a name, as a majority of the databases shows it."""
        return overview.show(self._members, check_name(name))

    def list(self) -> builtins.list[LockState]:
        """Return the names that have a lease or waiters at some member, sorted by name.

        A name that a minority alone has is shown as that minority has it.
        """
        return overview.list_all(self._members)

    def release(self, name: str, *, force: bool) -> bool:
        """Free a name at all databases, without asking its holder. Return whether a majority had a
        holder.

        You have to confirm with ``force=True``; anything else raises ValueError.
        """
        check_name(name)
        if force is not True:
            raise ValueError(
                "Quorum.release takes a lock away from its holder: confirm with force=True. "
                "Your own lease is released with lease.release()"
            )
        return overview.force(self._members, name)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has connections, which you cannot send to another process: make a Quorum "
            "there, from the URLs"
        )

    def close(self) -> None:
        """Close the idle connections. dblock stops renewing held leases: they expire.

        A release that a member has not executed yet is executed first, if the member answers.
        """
        self._members.keeper().stop(self._members, "its Quorum was closed")
        self._members.rest()
        self._members.closed = True
        for locks in self._made:
            locks.close()

    def __enter__(self) -> Quorum:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def check_targets(targets: object) -> builtins.list[Any]:
    """Return the targets of a quorum; raise TypeError or ValueError."""
    if isinstance(targets, str | bytes) or not isinstance(targets, Sequence):
        raise TypeError(
            f"a quorum takes a list of databases (URLs or Engines), not {type(targets).__name__}"
        )
    given = list(targets)
    if len(given) < 3 or len(given) % 2 == 0:
        raise ValueError(
            f"a quorum takes an odd number of databases, 3 or more, not {len(given)}: an even "
            "number tolerates no more failures than the odd number below it"
        )
    return given


def check_different(names: Sequence[str]) -> None:
    """Raise ValueError if two targets are the same by their addresses."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"a quorum needs independent databases, and {twice[0]} is given twice")
