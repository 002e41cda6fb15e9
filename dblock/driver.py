"""The driver: performs a protocol's steps on real connections."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from . import clock
from .connections import Connections, OwnConnection
from .driver_errors import first_line
from .errors import Unavailable
from .fork import leave_to_parent
from .protocol.faults import Fault, Trouble
from .protocol.steps import (
    AtGate,
    Await,
    Disown,
    Forget,
    Query,
    Reply,
    Run,
    RunHeld,
    Sleep,
    Stand,
    Step,
)
from .protocol.steps import Protocol as LockProtocol

if TYPE_CHECKING:
    from .dialects import Dialect
    from .gate import Gate
    from .waiting import Room, Spot
    from .world import World

T = TypeVar("T")

# After these a connection is not used again: it is broken, or leads to a server that cannot write.
UNUSABLE = frozenset({Fault.DISCONNECTED, Fault.READ_ONLY})


class Transaction(Protocol):
    """Where a row lock or a guard lives: a transaction of dblock's own, or the user's."""

    def run(self, step: RunHeld) -> Reply: ...

    def forget(self) -> None: ...


class Driver:
    """Runs protocols to their end, one step after the other, in the flow that calls."""

    def __init__(
        self, connections: Connections, dialect: Dialect, world: World, room: Room
    ) -> None:
        self.connections = connections
        self.dialect = dialect
        self.world = world
        self.room = room

    def run(
        self,
        protocol: LockProtocol[T],
        transaction: Transaction | None = None,
        left: list[Query] | None = None,
        gate: Gate | None = None,
    ) -> T:
        """Perform ``protocol``'s steps; those of the row lock in ``transaction``, or at a ``gate``.

        ``left`` gets what ends the session that a cancelled statement may still be run on.
        """
        reply: Any = None  # a generator is started by sending None
        trouble: Trouble | None = None
        spot: Spot | None = None
        try:
            while True:
                try:
                    step = protocol.throw(trouble) if trouble else protocol.send(reply)
                except StopIteration as stop:
                    outcome: T = stop.value
                    return outcome
                trouble = None
                if isinstance(step, Stand) and spot is None:
                    spot = self.room.spot(step.line)
                try:
                    reply = self._perform(step, transaction, left, spot, gate)
                except Trouble as caught:
                    trouble = caught
                self.world.check()
        except Unavailable:
            if spot is not None:
                spot.alarm()
            raise
        finally:
            if spot is not None:
                spot.leave()

    def _perform(
        self,
        step: Step,
        transaction: Transaction | None,
        left: list[Query] | None,
        spot: Spot | None,
        gate: Gate | None,
    ) -> Reply:
        if isinstance(step, Run):
            return self._run(step, left)
        if isinstance(step, AtGate):
            assert gate is not None, "only who has been given a gate waits at it"
            return gate.run(step, left)
        sent = clock.now()
        if isinstance(step, Sleep):
            self.world.sleep(step.seconds)
            return Reply((), 0, sent, clock.now())
        if isinstance(step, Stand):
            assert spot is not None
            first, alarmed = spot.stand(step.seconds)
            rows = [spot.ticket(step.server, look=step.look)] if first else []
            return Reply(rows, int(alarmed), sent, clock.now())
        if isinstance(step, Await):
            assert spot is not None, "who has a ticket has stood in line"
            called = spot.wait(step.seconds)
            return Reply((), int(called), sent, clock.now())
        if isinstance(step, Disown):
            self.room.listener.disown(step.tickets)
            return Reply((), 0, sent, clock.now())
        assert transaction is not None, "only protocols over a transaction hold or forget"
        if isinstance(step, RunHeld):
            return transaction.run(step)
        assert isinstance(step, Forget)
        transaction.forget()
        return Reply((), 0, sent, clock.now())

    def _run(self, step: Run, left: list[Query] | None) -> Reply:
        connection = self.connections.take()
        try:
            reply = execute(self.dialect, connection, step.query, step.within)
        except Trouble as trouble:
            if trouble.fault in UNUSABLE:
                self.connections.drop(connection)
                self.connections.clear()
            else:
                self.connections.give(connection)
            raise
        except BaseException:
            # KeyboardInterrupt, or a defect: nobody knows what is still on the wire.
            self.connections.drop(connection)
            if left is not None and connection.session.end is not None:
                left.append(connection.session.end)
            raise
        self.connections.give(connection)
        return reply


class OwnTransaction:
    """A transaction on a connection of dblock's own, for one row lock."""

    def __init__(self, connections: Connections, dialect: Dialect) -> None:
        self._connections = connections
        self._dialect = dialect
        self._connection: OwnConnection | None = None
        self._begun = False
        self._pid = os.getpid()
        #: What ends the session of a wait that was cancelled, for it to have no ghost.
        self.left: Query | None = None

    def __del__(self) -> None:
        if self._connection is not None:
            self.drop()  # first, since a warning can be an error
            if self._pid == os.getpid():
                warnings.warn(
                    "a held row lock was garbage-collected",
                    ResourceWarning,
                    stacklevel=1,
                    source=self,
                )

    def run(self, step: RunHeld) -> Reply:
        try:
            if self._connection is None:
                self._connection = self._connections.take()
            if not self._begun:
                for query in self._dialect.begin(step.patience):
                    execute(self._dialect, self._connection, query, waits=True)
                self._begun = True
            return execute(self._dialect, self._connection, step.query, waits=True)
        except Trouble as trouble:
            if trouble.fault in UNUSABLE:
                self.drop()
                self._connections.clear()
            raise
        except BaseException:
            if self._connection is not None:
                self.left = self._connection.session.end
            self.drop()
            raise

    def forget(self) -> None:
        """Undo the transaction and let its connection be used again, or drop it if that fails."""
        connection, begun = self._leave()
        if connection is None:
            return
        try:
            if begun:
                execute(self._dialect, connection, Query("ROLLBACK", {}))
        except BaseException as error:
            self._connections.drop(connection)
            if not isinstance(error, Trouble):
                raise
        else:
            self._connections.give(connection)

    def finish(self) -> None:
        """End the transaction. Raises Trouble when it had ended before, with its lock."""
        connection, _ = self._leave()
        assert connection is not None
        try:
            execute(self._dialect, connection, Query("COMMIT", {}))
        except BaseException:
            self._connections.drop(connection)
            raise
        self._connections.give(connection)

    def check(self) -> None:
        """Raises Trouble when the transaction has ended; then, or in doubt, its connection goes."""
        assert self._connection is not None
        try:
            execute(self._dialect, self._connection, Query("SELECT 1", {}))
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """End the transaction by closing its connection, without waiting for the server."""
        connection, _ = self._leave()
        if connection is None:
            return
        if self._pid == os.getpid():
            self._connections.drop(connection)
        else:
            leave_to_parent(connection)

    def _leave(self) -> tuple[OwnConnection | None, bool]:
        left = self._connection, self._begun
        self._connection, self._begun = None, False
        return left


def execute(
    dialect: Dialect,
    connection: OwnConnection,
    query: Query,
    within: float | None = None,
    *,
    waits: bool = False,
) -> Reply:
    """Run one statement on a connection of dblock's own, its answer awaited for ``within`` seconds.

    ``waits`` is as in :meth:`.Dialect.send`. Raises Trouble for what a database can do.
    """
    driver, session = connection.driver, connection.session
    if within is not None:
        dialect.bound_reads(driver, min(within, dialect.timeouts.socket))
    sent = clock.now()
    try:
        while True:
            try:
                rows, matched = dialect.send(driver, query, connection.cursor, waits=waits)
                break
            except Exception as error:
                if dialect.can_resend(driver, error):
                    continue
                fault = dialect.classify(error)
                if fault is None:
                    raise
                lost = fault is Fault.DISCONNECTED
                raise Trouble(
                    fault,
                    first_line(error),
                    timed_out=lost and dialect.timed_out(error),
                    end=session.end if lost else None,
                ) from error
    finally:
        if within is not None:
            dialect.bound_reads(driver, dialect.timeouts.socket)
    if session.doubts:  # as good as none
        raise Trouble(Fault.DISCONNECTED, session.doubts.pop())
    return Reply(rows, matched, sent, clock.now(), session.server)
