"""Bugs that are planted, and the scenario that finds each of them.

In the function ``old`` becomes ``new``; it is there once.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple


class Planted(NamedTuple):
    """One bug."""

    scenario: str
    module: str
    function: str
    old: str
    new: str

    @contextlib.contextmanager
    def plant(self) -> Iterator[None]:
        """Have it for a while."""
        module = import_module(self.module)
        kind, _, name = self.function.partition(".")
        owner = getattr(module, kind)
        before = inspect.getattr_static(owner, name)
        function: Any = before.fget if isinstance(before, property) else inspect.unwrap(before)
        source = textwrap.indent(textwrap.dedent(inspect.getsource(function)), "    ")
        assert source.count(self.old) == 1, f"{self.function} has not once: {self.old}"
        # In a class of the same name, for places to be called as they were.
        text = f"from __future__ import annotations\nclass {kind}:\n"
        text += source.replace(self.old, self.new)
        file = f"{module.__file__} with a bug"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        made: dict[str, Any] = {}
        exec(compile(text, file, "exec"), vars(module), made)
        setattr(owner, name, vars(made[kind])[name])
        try:
            yield
        finally:
            setattr(owner, name, before)


KEEPER, WORKER = "dblock.holding.keeper", "dblock.holding.worker"
CONNECTIONS = "dblock.io.connections"
LOCAL_QUEUE, NOTIFIER = "dblock.io.local_queue", "dblock.io.notifier"
LISTENER = "dblock.io.listener"
HOLDS, HANDLE_HOLDS = "dblock.holding.holds", "dblock.holding.handle_holds"
LEASE_HOLD = "dblock.holding.lease_hold"
HELD, ROW, USER_LOCKS = "dblock.handles.held", "dblock.handles.row", "dblock.io.user_locks"

PLANTED = (
    # --- the worker
    Planted("wakes", WORKER, "Worker.wake", "self._woken = True", "pass"),
    Planted("wakes", WORKER, "Worker.wake", "if not self.running:", "if True:"),
    Planted("wakes", WORKER, "Worker._run", "if not self._woken:", "if True:"),
    Planted(
        "wakes", WORKER, "Worker._run", "with lock:", "self._woken = False\n            with lock:"
    ),
    Planted("wakes_at_its_end", WORKER, "Worker._run", "self.running = False", "pass"),
    Planted(
        "wakes_at_its_end",
        WORKER,
        "Worker._run",
        "if not self._woken and pause == math.inf:",
        "if pause == math.inf:",
    ),
    Planted(
        "has_its_own_time",
        WORKER,
        "Worker._run",
        "self._wake.wait(min(pause, self._linger))",
        "self._wake.wait(self._linger)",
    ),
    # --- the keeper
    Planted("two_are_kept", KEEPER, "Keeper._look_again", "wake < self._next or not", "not"),
    Planted("released_while_renewed", KEEPER, "Keeper._settle", "hold.renewing = False", "pass"),
    Planted(
        "moved_while_renewed",
        KEEPER,
        "Keeper.moved",
        "self._look_again(hold.schedule.wake)",
        "pass",
    ),
    Planted(
        "forced_while_renewed", KEEPER, "Keeper._settle", "self._lose(hold, outcome, calls)", "pass"
    ),
    Planted(
        "runs_out_while_checked",
        HELD,
        "HeldLease._lose",
        "if hold.lose(loss):",
        "if hold.lose(loss) or True:",
    ),
    Planted(
        "runs_out_while_checked", HELD, "HeldLease._lose", "hold.callbacks = NO_CALLBACKS", "pass"
    ),
    Planted(
        "endangered_while_lost",
        KEEPER,
        "Keeper._warn",
        "hold.schedule.told(hold.lease.term)",
        "pass",
    ),
    # --- the local line
    Planted("one_leaves_as_one_comes", LOCAL_QUEUE, "LocalQueue.leave", "first.wake()", "pass"),
    Planted(
        "an_alarm", LOCAL_QUEUE, "LocalQueue.enter", "mine.rest()", "mine._woken or mine.rest()"
    ),
    Planted(
        "one_is_interrupted", LOCAL_QUEUE, "LocalQueue.enter", "places.popleft()", "return False"
    ),
    Planted("an_alarm", LOCAL_QUEUE, "LocalQueue.alarm", "waiter.wake()", "pass"),
    # --- the listener
    Planted("two_are_called", LISTENER, "Listener.connect", "self._open or self._con", "self._con"),
    Planted("two_are_called", NOTIFIER, "Notifier._stop_reading", "other.call()", "pass"),
    Planted("two_are_called", NOTIFIER, "Notifier._stop_reading", "self._reader = None", "pass"),
    Planted(
        "the_reader_gives_up", NOTIFIER, "Notifier._stop_reading", "call.waits = False", "pass"
    ),
    Planted("the_connection_is_lost", NOTIFIER, "Notifier._void", "call.over = True", "pass"),
    Planted(
        "two_are_called", NOTIFIER, "Notifier.wait", "if call.woken or call.over:", "if False:"
    ),
    Planted(
        "it_is_closed_as_one_is_called",
        NOTIFIER,
        "Notifier._stop_reading",
        "self._void() if",
        "[] if",
    ),
    # --- connections, and turns
    Planted(
        "cleared_while_used",
        CONNECTIONS,
        "Connections.give",
        "self._idle.append(connection)",
        "pass",
    ),
    Planted("closed_while_used", CONNECTIONS, "Connections.give", "self._closed or stale", "stale"),
    Planted("three_turns", CONNECTIONS, "Connections.drop", "connection.turns.put(None)", "pass"),
    Planted("three_turns", CONNECTIONS, "Connections.give", "turns.put(None)", "pass"),
    Planted("one_cannot_be_made", CONNECTIONS, "Connections.take", "turns.put(None)", "pass"),
    Planted("the_last_is_left", CONNECTIONS, "Connections._spare", "not self._idle:", "False:"),
    # --- user locks
    Planted("the_last_user_lock", USER_LOCKS, "UserLocks.admit", "with lock:", "if True:"),
    Planted(
        "dropped_by_two",
        USER_LOCKS,
        "UserLock._part",
        "with lock:\n            connection, self._connection",
        "if True:\n            connection = self._connection\n            self._connection, _",
    ),
    Planted(
        "its_user_locks_are_closed",
        USER_LOCKS,
        "UserLock.run",
        "self._connections.execute(connection, query",
        "self._connections.execute(self._connection, query",
    ),
    # --- handles
    Planted("released_by_two", HANDLE_HOLDS, "HandleHolds.take", "return False", "return True"),
    Planted(
        "each_has_its_own", HANDLE_HOLDS, "HandleHolds.find", "if hold.caller is mine:", "if True:"
    ),
    Planted("lost_by_two", HOLDS, "Hold.lose", "first = self.loss is None", "first = True"),
    Planted("checked_while_released", ROW, "RowLock._release", "if hold.renewing:", "if False:"),
    Planted("renewed_by_two", LEASE_HOLD, "LeaseHold.end", "if self.renewing:", "if False:"),
    Planted(
        "renewed_by_two",
        HOLDS,
        "Hold.renewed_here",
        "lambda: not self.renewing",
        "lambda: True",
    ),
)
