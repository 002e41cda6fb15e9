"""Mutants of connections, forks and interrupts: nothing leaks (promise 9)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONNECTING = "tests/faults/test_connecting.py"
FORK = "tests/processes/test_fork_gc.py"
INTERRUPTS = "tests/processes/test_interrupts.py"

CONNECTIONS = (
    # --- 9: nothing leaks
    Mutant(
        "fork-inherits",
        "a forked child does not own its parent's holds",
        "Hold.inherited",
        "return self.pid != os.getpid()",
        "return False",
        f"{FORK}::test_a_forked_child_does_not_hold_its_parents_lease[sqlite]",
    ),
    Mutant(
        "interrupted-connection-kept",
        "a connection whose state is not known is thrown away",
        "Driver._run",
        "self.connections.drop(connection)\nif orphaned",
        "self.connections.give(connection)\nif orphaned",
        f"{INTERRUPTS}::test_acquire[sqlite]",
        dies_in="model dropped-handle: b.sweep#1!interrupt",
    ),
    Mutant(
        "interrupted-grant-kept",
        "an interrupted acquire leaves no lock behind",
        "TakeableLease._undo",
        "taking.abandon(find)",
        "pass",
        f"{INTERRUPTS}::test_acquire[postgresql]",
        dies_in="model dropped-handle: b.join#1!interrupt",
    ),
    Mutant(
        "a-grant-is-kept-where-the-stack-is-used-up",
        "an acquire that fails leaves no lock behind",
        "Runtime.undo",
        "if isinstance(error, RecursionError):",
        "if False:",
        "tests/connections/test_deep_stacks.py::test_acquire[lease-postgresql]",
    ),
    # --- connections
    Mutant(
        "connections-queue",
        "nobody waits for others to connect",
        "connecting.detached",
        "proxy = pool.recreate().connect()",
        "proxy = pool.connect()",
        f"{CONNECTING}::test_a_first_connection_that_is_not_answered_holds_up_no_other"
        "[postgresql-threads]",
    ),
    Mutant(
        "row-locks-take-the-last-connection",
        "row locks leave leases the connection that renews them",
        "Connections._spare",
        (
            "self._take_idle() if len(self._idle) > 1 else None\n"
            "if connection is not None and not self._idle:"
        ),
        "self._take_idle()\nif False:",
        f"{CONNECTING}::test_row_locks_leave_leases_the_connection_that_renews_them"
        "[postgresql-threads]",
    ),
    Mutant(
        "idle-connections-are-kept-from-row-locks",
        "a role that may have few connections can have row locks",
        "Connections.take",
        "if full and self._beside is not None else None",
        "if False else None",
        f"{CONNECTING}::test_at_the_limit_of_a_role[postgresql-threads]",
    ),
)
