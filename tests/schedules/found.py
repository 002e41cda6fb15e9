"""What schedules have found in dblock: each with the schedule, and the code as it was."""

from __future__ import annotations

from typing import NamedTuple

from .planted import CONNECTIONS, HELD, HOLDS, KEEPER, LISTENER, NOTIFIER, USER_LOCKS, Planted


class Found(NamedTuple):
    """``before`` brings the defect back."""

    before: Planted
    schedule: str


ASKED_FIRST = """if self._closed or connection.cleared != self._cleared:
            close(connection.driver, self._adapter)
        else:
            self._idle.append(connection)
        return turns.put(None)"""

TOLD_WITH_THE_REST = """schedule.told(term)
                if hold.callbacks.on_danger is not None:
                    danger = schedule.warning(hold.name, hold.lease, now, asking=hold.renewing)
                    calls.append(partial(hold.callbacks.on_danger, danger))"""

SET_FIRST = """first = self.loss is None
            if first and self._lost is not None:
                self._lost.set()"""

#: By what went wrong.
FOUND = {
    "two listen, and one of them is never read": Found(
        Planted(
            "two_are_called", LISTENER, "Listener.connect", "self._open or self._con", "self._con"
        ),
        """
        one at Listener.connect `self._open.append(connection)`: two
        """,
    ),
    "the connection that listens stays open after close": Found(
        Planted(
            "it_is_closed_as_one_is_called",
            NOTIFIER,
            "Notifier._stop_reading",
            "self._void() if self.listener.refused",
            "[] if self.listener.refused",
        ),
        """
        one waits at Listener.read `if left <= 0 or not self._runtime.readable(…`: database
        database ends: user
        """,
    ),
    "an observer does not hear its topic": Found(
        Planted(
            "one_observes", NOTIFIER, "Notifier.ticket", "if observes != self._observes:", "if 0:"
        ),
        """
        begin: database
        one at Listener.connect `with lock:` #3: observer
        """,
    ),
    "an idle connection stays open after close": Found(
        Planted(
            "closed_while_used",
            CONNECTIONS,
            "Connections.give",
            "self._idle.append(connection)",
            ASKED_FIRST,
        ),
        """
        two at Connections.give `self._idle.append(connection)`: other
        """,
    ),
    "a connection from before a failure is kept": Found(
        Planted(
            "cleared_while_used",
            CONNECTIONS,
            "Connections.give",
            "self._idle.append(connection)",
            ASKED_FIRST,
        ),
        """
        one at Connections.give `self._idle.append(connection)`: other
        """,
    ),
    "the last idle connection is taken from the renewals": Found(
        Planted("the_last_is_left", CONNECTIONS, "Connections._spare", "not self._idle:", "False:"),
        """
        one at Connections._take_idle `connection = self._idle.pop()`: two
        """,
    ),
    "a danger is told after a loss that a renewal found": Found(
        Planted(
            "endangered_while_lost",
            KEEPER,
            "Keeper._look_at",
            "self._warn(hold, now)",
            TOLD_WITH_THE_REST,
        ),
        """
        dblock renewer at Keeper._ripe `within = min(within, hold.schedule.patience…`: dblock timer
        dblock timer at Keeper._watch `self.call(*calls)` #3: dblock renewer
        """,
    ),
    "a danger is told after a loss that the holder found": Found(
        Planted(
            "runs_out_while_checked",
            HELD,
            "HeldLease._lose",
            "hold.callbacks = NO_CALLBACKS",
            "pass",
        ),
        """
        begin: user
        dblock timer at Keeper._watch `with lock:` #8: user
        """,
    ),
    "who is told of a loss does not see it": Found(
        Planted("lost_by_two", HOLDS, "Hold.lose", "first = self.loss is None", SET_FIRST),
        """
        begin: user
        expired at Hold.lose `self.loss = loss`: user
        """,
    ),
    "a user lock is dropped while a statement begins": Found(
        Planted(
            "its_user_locks_are_closed",
            USER_LOCKS,
            "UserLock.run",
            "self._connections.execute(connection, query",
            "self._connections.execute(self._connection, query",
        ),
        """
        user at UserLock.run `reply = self._connections.execute(self._con…` #2: other
        """,
    ),
}
