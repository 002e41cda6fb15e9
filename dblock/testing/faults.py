"""What happens to locks, for tests to have it happen."""

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

# A waiter is seen when it has waited for a moment.
SHOWN = Timing().visible_after + 0.1

#: The statements whose request or reply can be lost.
Statement = Literal["acquire", "renew", "release"]


class Faults:
    """A database of one test, with locks in it, and what life does to them.

    ``locks`` are those of the application, :class:`dblock.Locks` or AsyncLocks, Django's too: they
    are in that database until the end of ``with``, with all handles that were made of them.

    Its clock stands still until :meth:`advance` moves it, or somebody waits. What a method does
    to a lock has been told when it returns: ``lost`` is set, ``on_lost`` has been called.
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
        self.close()

    def close(self) -> None:
        """End it: all locks are where they were before, and nobody holds any."""
        self._stack.close()

    # --- the locks ---------------------------------------------------------------------------

    @cached_property
    def locks(self) -> Locks:
        """Locks of the test's own."""
        made = Locks(self._store.engine)
        self.instead_of(made)
        return made

    @cached_property
    def async_locks(self) -> AsyncLocks:
        """Locks of the test's own for asyncio, in the same database."""
        from .tasks import LocksOfTasks

        made = LocksOfTasks(self._store)
        self.instead_of(made)
        return made

    def instead_of(self, *locks: Locks | AsyncLocks) -> None:
        """Have the application's own locks be in the test's database until the end.

        Raises ValueError where a lease of theirs is held.
        """
        for one in locks:
            found: Any = one.lease
            owner = found.__self__  # also of what stands for it, as Django's `locks` do
            if isinstance(owner, Locks):
                self._stack.callback(stand_in(self._process, owner))
            else:
                from .tasks import stand_in_for_tasks

                self._stack.callback(stand_in_for_tasks(self._process, owner))

    # --- time --------------------------------------------------------------------------------

    def advance(self, seconds: Seconds) -> None:
        """Let time go by: leases are renewed meanwhile, or run out, as they do."""
        clock = self._store.clock
        clock.move(clock.now() + arguments.seconds("seconds", seconds))

    def pause(self, seconds: Seconds) -> None:
        """Let this process be stopped for so long, as by SIGSTOP or a virtual machine's suspend,
        while time goes by for the database and other processes."""
        clock = self._store.clock
        clock.move(clock.now() + arguments.seconds("seconds", seconds), paused=self._process.staff)

    # --- what is lost ------------------------------------------------------------------------

    def expire(self, name: str) -> None:
        """Let the lease on a name run out now. Its holder has been told when this returns.

        Raises ValueError when nobody holds it.
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
        """Let the lease on a name run out and another process take it. Return that.

        Raises ValueError when nobody holds it.
        """
        self.expire(name)
        return self.held_by_another(name, ttl=ttl)

    def miss_renewals(self, name: str) -> AbstractContextManager[object]:
        """Let no renewal of a lease arrive from now on, or until the end of ``with``.

        :meth:`advance` brings the danger, after two thirds of the TTL, and then the loss.
        """
        missing = self._process.wire.missing
        missing.add(check_name(name))
        return _until(lambda: missing.discard(name))

    def fail_guard(self, name: str, *, conflict: bool = False) -> None:
        """Let the next guard of a lease fail, although its holder had no reason to expect that.

        By LockLost: another process has it, since the name was released by force. With
        ``conflict`` by Conflict, as where the transaction's snapshot is too old to lock the row.
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

        Other processes are not.
        """
        self._process.wire.away = True
        return _until(self.reachable)

    def reachable(self) -> None:
        """End :meth:`unreachable`."""
        self._process.wire.away = False

    def lose_request(self, of: Statement | None = None) -> None:
        """Let the connection break before the next statement arrives: that of an acquire, a
        renewal or a release, or whichever comes."""
        self._lose(of, reply=False, then_away=False)

    def lose_reply(self, of: Statement | None = None, *, then_unreachable: bool = False) -> None:
        """Let the connection break when the next statement was run and its reply is on the way.

        dblock finds out what it did; it cannot when the database is ``then_unreachable``.
        """
        self._lose(of, reply=True, then_away=then_unreachable)

    def _lose(self, of: str | None, *, reply: bool, then_away: bool) -> None:
        known = frozenset(get_args(Statement))
        if of is not None and of not in known:
            raise ValueError(f"of= is one of {', '.join(sorted(known))}, not {of!r}")
        kinds = known if of is None else frozenset((of,))
        self._process.wire.losses.append(Loss(kinds, reply, then_away))

    # --- others ------------------------------------------------------------------------------

    def held_by_another(
        self, name: str, *, ttl: Seconds = 30.0, seconds: Seconds | None = None
    ) -> Another:
        """Let another process hold a name, for so many ``seconds`` of the test's time, or until
        it is told to release it. Raises ValueError when the name is not free."""
        another = self._another(name, check_ttl(ttl))
        if not another._take():
            raise ValueError(
                f"{name!r} is held by the test itself: take_over() is what takes a lease from its "
                "holder"
            )
        if seconds is not None:
            clock = self._store.clock
            clock.at(clock.now() + arguments.seconds("seconds", seconds), another._leave)
        return another

    def wanted_by_another(self, name: str, *, ttl: Seconds = 30.0) -> Another:
        """Let another process wait for a name until it gets it; `show()` has it among the waiters.

        Once the name is free it is had when time has gone by: :meth:`advance`. Raises ValueError
        when nobody holds the name.
        """
        if check_name(name) not in self._store.held():
            raise ValueError(f"nobody holds {name!r}, so nobody waits for it{self._held_instead()}")
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
        return f"; held are: {held}" if held else ""


def _until(end: Callable[[], object]) -> AbstractContextManager[object]:
    """Return what does something at the end of ``with``, if it is used so."""
    stack = ExitStack()
    stack.callback(end)
    return stack
