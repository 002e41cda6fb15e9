"""One database as the strategies see it: its dialect, its connections, its callers' holds."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

from ..arguments import LABEL_MAX, check_label
from ..errors import NotAcquired
from ..io.connecting import Connector
from ..io.connections import Connections
from ..io.contenders import Contenders
from ..io.driver import Driver
from ..io.place import SchemaCheck, Whereabouts
from ..io.target import File, engine_of
from ..protocol import renew
from ..protocol.exchange import Exchange
from ..protocol.lease import Refused
from ..protocol.waiters import Caller, Waiter

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

    from ..dialects import Dialect
    from ..io.borrowed import Borrowable, Borrowed
    from ..io.runtime import Runtime
    from ..policy import Timeouts
    from ..protocol.renew import Asked, Renewed
    from .callers import CallerRegistry
    from .keeper import Keeper

T = TypeVar("T")

# Statements are short, so a few connections serve many threads.
CONNECTIONS = 8


_host = cache(socket.gethostname)


@lru_cache(maxsize=256)
def _owner(pid: int, label: str) -> str:
    return f"{_host()} pid {pid}{' ' if label else ''}{label}"[:LABEL_MAX]


class Database:
    """The objects that leases, row locks and counters of one database share."""

    def __init__(
        self,
        source: Engine | File,
        dialect: Dialect,
        label: str | None,
        *,
        lent: bool,
        runtime: Runtime,
        keeper: Callable[[], Keeper],
        callers: CallerRegistry,
    ) -> None:
        self.dialect = dialect
        self.runtime = runtime
        #: Renews the leases that are held here.
        self.keeper = keeper
        self.callers = callers
        check = SchemaCheck(dialect)
        self.connections = Connections(
            Connector(source, dialect.adapter, lent=lent),
            runtime=runtime,
            limit=CONNECTIONS,
            check=check,
            placed=dialect.placed,
        )
        holders = Connections(
            Connector(source, dialect.adapter),
            runtime=runtime,
            check=check,
            placed=dialect.placed,
            beside=self.connections,
        )
        #: The database as the keeper sees it, which may be on another loop.
        self.kept = self
        self.label = check_label(label or "")
        self.contenders = Contenders(holders, dialect, runtime)
        #: Runs a procedure to its outcome.
        self.run = Driver(self.connections, dialect, runtime, self.contenders.local_queue).run
        #: Finds the place of the tables, and checks that a user's transaction uses them.
        self.whereabouts = Whereabouts(dialect, self.run, runtime)

    @property
    def engine(self) -> Engine:
        return engine_of(self.connections.connector.source)

    @property
    def holders(self) -> Connections:
        """The connections of row locks: each is in use while its lock is held or waited for."""
        return self.contenders.connections

    @property
    def timeouts(self) -> Timeouts:
        return self.dialect.timeouts

    def exchange(
        self, name: str = "", *, wait: float | None = None, timeout: float | None = None
    ) -> Exchange:
        """Return the exchange of a call that begins now; ``timeout`` is :attr:`.Timeouts.socket`
        if it is None."""
        now = self.runtime.now()
        timeout = self.timeouts.socket if timeout is None else timeout
        return Exchange(self.dialect, name, now, wait, timeout, now)

    def renew_all(self, asked: Sequence[Asked], within: float) -> Sequence[Renewed]:
        """Renew many holds at once; see :func:`.renew.renew_all`."""
        outcomes, _ = self.run(renew.renew_all(self.dialect, asked, within))
        return outcomes

    def owner(self, label: str, client: str = "") -> str:
        """Return the present owner label of this process, or of the client for which it waits. It
        is for people, and proves nothing."""
        return client or _owner(os.getpid(), label or self.label)

    def waiter(
        self, name: str, strategy: str, start: float, label: str = "", client: str = ""
    ) -> Waiter:
        """Return a waiter for the caller, or for its client, which has waited since ``start``."""
        return Waiter(
            self.dialect,
            name,
            strategy,
            start,
            Caller(
                owner=partial(self.owner, label, client),
                holds=self.callers.held,
                new_id=partial(self.runtime.token, 16),
                seen=self.contenders.seen,
            ),
        )

    def stand_in(self, other: Database) -> Callable[[], None]:
        """Let all handles that refer to this object work in another database, for
        :mod:`dblock.testing`. Return a function that undoes it."""
        here, before = vars(self), vars(self).copy()

        def undo() -> None:
            here.clear()
            here.update(before)

        here.update(vars(other))
        return undo

    @cached_property
    def borrower(self) -> Callable[[Borrowable, Dialect, Runtime], Borrowed]:
        from ..io.sqlalchemy_transaction import borrow

        return borrow

    def borrow(self, on: Borrowable) -> Borrowed:
        """Return the user's transaction; see :func:`.sqlalchemy_transaction.borrow`."""
        transaction = self.borrower(on, self.dialect, self.runtime)
        transaction.recognise()
        if self.dialect.place is None:
            self.whereabouts.find(transaction)
        return transaction

    def withdraw(self, waiter: Waiter) -> None:
        """Delete the waiter's row after its wait has ended."""
        if waiter.trace:
            self.run(waiter.leave())

    def not_acquired(self, name: str, refused: Refused, wait: float | None) -> NotAcquired:
        """Return the error for a refusal: it names the holder and the expiry."""
        state = None if refused.state is None else refused.state.told()
        if state is not None and refused.row_lock is not None:
            state = replace(state, row_lock=refused.row_lock)
        if state is not None and (state.held or state.row_lock is not None):
            who = state.describe()
        elif refused.pause:
            who = (
                f"nothing is granted for another {refused.pause:.1f} s, because the database "
                "crashed or failed over and may have lost the holder's lease"
            )
        else:
            who = "held by a row lock, or by waiters that came first"
        within = "" if wait is None else f" within {wait:g} s"
        return NotAcquired(f"{name!r} was not acquired{within}: {who}", name=name, holder=state)

    def disconnect(self) -> None:
        """Close the idle connections now, and the others when they are returned.

        dblock opens new connections when it needs them; they may reach another database.
        """
        try:
            self.contenders.disconnect()
        finally:
            self.connections.clear()
            self.holders.clear()
            self.dialect.settle(None)

    def close(self) -> None:
        """Close the idle connections, and the connections on which waiters wait."""
        try:
            self.contenders.close()
        finally:
            self.connections.close()
            self.holders.close()
