"""Mutants of waiting at a name's gate, on MariaDB (promise 10)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WAITS = "tests/waiting/test_gate_mariadb.py"
ENDS = "tests/waiting/test_gate_mariadb_ends.py"
HOLDING = "tests/waiting/test_gate_mariadb_holds.py"
FOUND = "tests/simulation/test_found.py::test_it_is_mended"
KEPT = "nobody keeps the gate without the name"

GATES = (
    Mutant(
        "the-gate-is-kept-without-the-row",
        KEPT,
        "UserLock.run",
        "elif step.first or step.last:\n    self._leave(connection)",
        "elif step.first or step.last:\n    self._give()",
        f"{HOLDING}::test_a_release_that_finds_its_row_in_use_lets_it_go",
    ),
    Mutant(
        "a-renewed-hold-keeps-the-gate",
        KEPT,
        "LeaseHold.begin",
        "self._leave_user_lock()",
        "",
        f"{HOLDING}::test_a_renewal_lets_it_go",
    ),
    Mutant(
        "a-lost-hold-keeps-the-gate",
        KEPT,
        "LeaseHold.lose",
        "self._leave_user_lock()",
        "",
        f"{HOLDING}::test_the_loss_itself_lets_it_go",
    ),
    Mutant(
        "a-name-left-to-run-out-keeps-the-gate",
        KEPT,
        "Lease._give_back",
        "hold.user_lock.drop()",
        "pass",
        f"{HOLDING}::test_a_name_that_is_left_to_run_out_has_no_gate",
    ),
    Mutant(
        "interrupted-and-keeps-the-gate",
        KEPT,
        "Lease._try_within",
        "if user_lock is not None:\n    user_lock.drop()\nif not isinstance",
        "if not isinstance",
        f"{ENDS}::test_ctrl_c_at_each_statement[taken]",
    ),
    Mutant(
        "a-child-closes-its-parents-gate",
        "a lock cannot leak through a fork",
        "UserLock.drop",
        "leave_to_parent(connection)",
        "self._connections.drop(connection)",
        f"{ENDS}::test_a_forked_child_has_none_of_its_parents",
    ),
    Mutant(
        "past-the-deadline-at-the-gate",
        "every wait has a deadline if asked",
        "ServerWait._patience",
        "self.waiter.piece(self.deadline.within(patience), self.deadline.now)",
        "self.waiter.piece(patience, self.deadline.now)",
        f"{WAITS}::test_the_deadline_is_kept_at_the_gate[threads]",
    ),
    Mutant(
        "unavailable-at-the-gate",
        "a lock is refused to nobody because the gate is no use",
        "ServerWait._wait_in_server",
        "if failure.fault in (Fault.DISCONNECTED, Fault.CANCELED):",
        "if failure.fault is not Fault.BUSY:",
        f"{WAITS}::test_no_connection_is_left_for_it",
    ),
    Mutant(
        "waits-at-the-gate-past-the-expiry",
        "a lease that has run out is taken at once",
        "ServerWait._patience",
        "patience = min(patience, state.remaining)",
        "pass",
        f"{FOUND}[who waits at the gate of one that is stopped does not see its lease run out]",
    ),
    Mutant(
        "gates-without-end",
        "waiting is cheap",
        "UserLocks.admit",
        "if self.kept >= (2 * self.limit if user_lock.hot else self.limit):",
        "if False:",
        f"{WAITS}::test_so_many_when_all_come_at_once",
    ),
)
