"""Faults: a test decides what happens to its locks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from .. import arguments
from ..arguments import check_name, check_ttl
from ..locks import Locks
from ..protocol.faults import Fault, StatementError
from ..protocol.term import Term
from ..protocol.timing import Timing
from .another import Another
from .process import Process
from .standing_in import stand_in
from .store import Store
from .wire import Loss

if TYPE_CHECKING:
    from ..aio import AsyncLocks
    from ..arguments import Seconds

# Seconds after which a waiter is visible.
SHOWN = Timing().visible_after + 0.1

#: The statements whose request or reply can be lost.
Statement = Literal["acquire", "renew", "release"]


class Faults:
    """The database of one test, and faults for the locks in it.

    ``locks`` are your application's: :class:`dblock.Locks`, AsyncLocks, or Django's. Until the end
    of ``with`` they are in the test's database, with every handle that was made from them.

    Time stands still until :meth:`advance` or :meth:`pause` moves it, or until a caller waits. All
    times are in seconds. When a method returns, the holder has learned of the fault: ``lost`` is
    set, and dblock has called ``on_lost``.

    The end of ``with`` raises AssertionError if dblock has sent no statement for
    :meth:`lose_request` or :meth:`lose_reply` to lose, because then the test has not tested that
    fault.
    """

    def __init__(self, *locks: Locks | AsyncLocks) -> None:
        self._stack = ExitStack()
        self._store = Store()
        self._stack.callback(self._store.close)
        self._process = Process(self._store)
        self._others: list[Another] = []
        self._stack.callback(self._process.end)
        try:
            self.instead_of(*locks)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        unmet = [] if kind is not None else [loss.asked for loss in self._process.wire.losses]
        self.close()
        if unmet:
            raise AssertionError(
                f"{', '.join(unmet)}: no such statement was sent, so nothing of it was tested"
            )

    def close(self) -> None:
        """Move all locks back to their own databases. No process holds them afterwards."""
        self._stack.close()

    # --- the locks ---------------------------------------------------------------------------

    @cached_property
    def locks(self) -> Locks:
        """:class:`dblock.Locks` in the test's database."""
        made = Locks(self._store.engine)
        self.instead_of(made)
        return made

    @cached_property
    def async_locks(self) -> AsyncLocks:
        """:class:`dblock.aio.AsyncLocks` in the test's database."""
        from .tasks import LocksOfTasks

        made = LocksOfTasks(self._store)
        self.instead_of(made)
        return made

    def instead_of(self, *locks: Locks | AsyncLocks) -> None:
        """Move your application's locks into the test's database until the end.

        Raises ValueError if one of their leases is held.
        """
        for one in locks:
            found: Any = one.lease
            owner = found.__self__  # Django's `locks` are a proxy
            if isinstance(owner, Locks):
                self._stack.callback(stand_in(self._process, owner))
            else:
                from .tasks import stand_in_for_tasks

                self._stack.callback(stand_in_for_tasks(self._process, owner))

    # --- time --------------------------------------------------------------------------------

    def advance(self, seconds: Seconds) -> None:
        """Let ``seconds`` pass. In that time dblock renews leases, or they expire."""
        clock = self._store.clock
        clock.move(clock.now() + arguments.seconds("seconds", seconds))

    def pause(self, seconds: Seconds) -> None:
        """Stop this process for ``seconds``, as SIGSTOP or a suspended virtual machine would.

        Time passes for the database and for other processes.
        """
        clock = self._store.clock
        clock.move(clock.now() + arguments.seconds("seconds", seconds), paused=self._process.staff)

    # --- losses ------------------------------------------------------------------------------

    def expire(self, name: str) -> None:
        """End the lease on a name now.

        Raises ValueError if it is not held.
        """
        token = self._store.expire(check_name(name))
        if token is None:
            raise ValueError(f"nobody holds {name!r}{self._held_instead()}")
        for process in (self._process, *(other._process for other in self._others)):
            for hold in process.keeper.holds():
                if hold.token == token:
                    ttl = hold.lease.term.ttl
                    process.keeper.moved(hold, Term(self._store.clock.now() - 2 * ttl, ttl))
        self.advance(0)

    def take_over(self, name: str, ttl: Seconds = 30.0) -> Another:
        """End the lease on a name, and let another process take it. Return that process.

        ``ttl`` is the TTL of its lease. Raises ValueError if the name is not held.
        """
        self.expire(name)
        return self.held_by_another(name, ttl=ttl)

    def miss_renewals(self, name: str) -> AbstractContextManager[object]:
        """Stop every renewal of a lease, for good or until the end of ``with``.

        After two thirds of the TTL, :meth:`advance` leads to ``on_danger``, and then to the loss.
        """
        missing = self._process.wire.missing
        missing.add(check_name(name))
        return _until(lambda: missing.discard(name))

    def fail_guard(self, name: str, *, conflict: bool = False) -> None:
        """Let the next ``guard()`` of a lease fail, although ``check()`` finds nothing.

        It raises LockLost, because another process has the name. With ``conflict=True`` it raises
        Conflict, because the transaction's snapshot is too old.
        """

        def taken() -> None:
            self._store.expire(name)
            self._another(name, 30.0)._take()

        def too_old() -> None:
            raise StatementError(Fault.SERIALIZATION, "the snapshot is too old, as the test asked")

        self._process.wire.guards[check_name(name)] = too_old if conflict else taken

    # --- the database, from here -------------------------------------------------------------

    def unreachable(self) -> AbstractContextManager[object]:
        """Cut this process off from the database, until :meth:`reachable` or the end of ``with``.

        Other processes still reach it.
        """
        self._process.wire.away = True
        return _until(self.reachable)

    def reachable(self) -> None:
        """End :meth:`unreachable`."""
        self._process.wire.away = False

    def lose_request(self, of: Statement | None = None) -> None:
        """Break the connection before the next statement arrives at the database.

        ``of`` is ``"acquire"``, ``"renew"`` or ``"release"``; None means the next of any kind.
        """
        self._lose(of, reply=False, then_away=False)

    def lose_reply(self, of: Statement | None = None, *, then_unreachable: bool = False) -> None:
        """Run the next statement, and break the connection before its reply arrives.

        ``of`` is as for :meth:`lose_request`. dblock finds out what the statement did. With
        ``then_unreachable=True`` it cannot, because the database is unreachable from then on.
        """
        self._lose(of, reply=True, then_away=then_unreachable)

    def _lose(self, of: str | None, *, reply: bool, then_away: bool) -> None:
        known = frozenset(get_args(Statement))
        if of is not None and of not in known:
            raise ValueError(f"of= must be one of {', '.join(sorted(known))}, not {of!r}")
        kinds = known if of is None else frozenset((of,))
        asked = f"lose_{'reply' if reply else 'request'}({'' if of is None else repr(of)})"
        self._process.wire.losses.append(Loss(asked, kinds, reply, then_away))

    # --- others ------------------------------------------------------------------------------

    def held_by_another(
        self, name: str, *, ttl: Seconds = 30.0, seconds: Seconds | None = None
    ) -> Another:
        """Let another process hold a name. Return that process.

        It holds the name for ``seconds`` of the test's time. If that is None, it holds the name
        until ``release()``, ``die()`` or the end of ``with``. ``ttl`` is the TTL of its lease.
        Raises ValueError if the name is not free.
        """
        another = self._another(name, check_ttl(ttl))
        if not another._take():
            raise ValueError(
                f"the test itself holds {name!r}: use take_over() to take a lease from its holder"
            )
        if seconds is not None:
            clock = self._store.clock
            clock.at(clock.now() + arguments.seconds("seconds", seconds), another._leave)
        return another

    def wanted_by_another(self, name: str, *, ttl: Seconds = 30.0) -> Another:
        """Let another process wait for a name. Return that process.

        ``show()`` lists it among the waiters. Once the name is free, it takes the name when time
        passes: call :meth:`advance`. Raises ValueError if the name is not held.
        """
        if check_name(name) not in self._store.held():
            raise ValueError(
                f"nobody holds {name!r}, so nobody can wait for it{self._held_instead()}"
            )
        another = self._another(name, check_ttl(ttl))
        another._wait()
        self.advance(SHOWN)
        return another

    def _another(self, name: str, ttl: float) -> Another:
        made = Another(self._store, name, ttl)
        self._stack.callback(made._close)
        self._others.append(made)
        return made

    def _held_instead(self) -> str:
        held = ", ".join(map(repr, self._store.held()))
        return f"; the names that are held: {held}" if held else ""


def _until(end: Callable[[], object]) -> AbstractContextManager[object]:
    """Return a context manager that calls ``end`` at the end of ``with``."""
    stack = ExitStack()
    stack.callback(end)
    return stack
