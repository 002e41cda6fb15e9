"""Waiting in the server: for a lock of the session's, which is had with the name and let go with
it. On MariaDB that is ``GET_LOCK``.

That lock decides nothing. The row does, and who stands in its queue comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import DBLockError
from ..attempt import Answer
from ..faults import Fault, StatementError
from ..lease import Held
from ..release import end_session
from ..retry import UNDONE
from ..steps import ExecuteOnSession, Procedure, Sleep
from .polling import Polling

#: What ends a wait, and is no reason not to wait.
_CUT_OFF = frozenset({Fault.DISCONNECTED, Fault.CANCELED})


@dataclass(slots=True)
class SessionLock:
    """How it stands with the session's lock."""

    #: Whether there is a connection for it to be had; whether it is waited for next, or was the
    #: last time in vain; and whether it is had.
    open: bool = True
    waits_next: bool = False
    in_vain: bool = False
    had: bool = False
    #: The fence that the name was first seen with while it was had.
    fence: int | None = None


@dataclass(eq=False)
class ServerWait(Polling):
    """Who finds no room in the server polls, as others do."""

    lock: SessionLock = field(init=False)

    def __post_init__(self) -> None:
        self.lock = SessionLock(waits_next=self.hot)

    def ask(self) -> Procedure[Held | None]:
        held = yield from self._ask(self._grant)
        if held is not None and self._for_readers:  # the next time it does not begin in the server
            return held._replace(contended=False)
        return held

    def _grant(self) -> Procedure[Answer]:
        if self.lock.waits_next:
            yield from self._wait_in_server()
        query = self.attempt.statement(self.turn.ticket)
        if not self.lock.had:
            return query, (yield from self.attempt.reach(query))
        try:
            return query, (yield ExecuteOnSession(query))
        except StatementError as failure:
            if failure.fault not in UNDONE:
                self.lock.had, self.lock.fence = False, None
            raise

    def _wait_in_server(self) -> Procedure[None]:
        """Wait in the server for the session's lock."""
        self.lock.waits_next = False
        patience = yield from self._patience()
        try:
            query = self.attempt.dialect.wait_in_server(self.attempt.request.name, patience)
            reply = yield ExecuteOnSession(query, first=True)
        except StatementError as failure:
            yield from self._end_wait(failure)
            if failure.fault not in _CUT_OFF:  # else it may wait again at once
                self.lock.in_vain = True
                self.lock.open = self.lock.open and failure.fault in UNDONE  # else there is none
        else:
            self.attempt.contended = self.attempt.contended or query.read(reply)
            self.deadline.now, self.lock.had = reply.now, True

    def _end_wait(self, failure: StatementError) -> Procedure[None]:
        """End the session of a wait that broke, or it gets the lock yet, and keeps it.

        Nothing was asked for in it, so that nothing is in doubt.
        """
        deadline = self.deadline
        deadline.now = (yield Sleep(0)).now
        if failure.end is None:
            return
        try:
            _, deadline.now = yield from end_session(
                self.attempt.dialect, failure.end, deadline.reach, deadline.now
            )
        except DBLockError as error:
            raise self.attempt.told(error) from error.__cause__

    def _patience(self) -> Procedure[float]:
        """Return how long to wait in the server in one go."""
        self.deadline.now = yield from self.waiter.note(self.deadline.now)
        dialect, state = self.attempt.dialect, self.attempt.seen.state
        patience = min(dialect.timing.server_wait, dialect.timeouts.query / 2)
        if state is not None and not state.held:  # it is kept for who has the session's lock
            patience = min(patience, dialect.grace)
        elif state is not None and state.remaining is not None:
            # Who is stopped keeps that, but not the name.
            patience = min(patience, state.remaining)
        return self.waiter.piece(self.deadline.within(patience), self.deadline.now)

    def ready(self) -> bool:
        """Whether to wait in the server next: not twice in vain."""
        in_vain, self.lock.in_vain = self.lock.in_vain, False
        if self.lock.had and self.lock.fence is None:
            self.lock.fence = self._seen_fence
        waits = self.lock.open and self.turn.first and not (self.deadline.over or self._for_readers)
        self.lock.waits_next = self.joins = waits and not (self.lock.had or in_vain)
        return self.lock.waits_next

    def queues(self) -> bool:
        """Who is overtaken although it has the session's lock joins the queue; and who waits for a
        name that readers want too, where they see it before them."""
        overtaken = self.lock.fence is not None and self._seen_fence > self.lock.fence
        return overtaken or self._for_readers or not self.lock.open

    @property
    def _for_readers(self) -> bool:
        state = self.attempt.seen.state
        return state is not None and state.shared

    @property
    def _seen_fence(self) -> int:
        state = self.attempt.seen.state
        return 0 if state is None else state.fence
