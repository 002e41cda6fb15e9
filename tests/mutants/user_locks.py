"""Mutants of waiting in the server, for a name's user lock, on MariaDB (promise 10)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WAITS = "tests/waiting/test_server_wait.py"
ENDS = "tests/waiting/test_server_wait_ends.py"
HOLDING = "tests/waiting/test_server_wait_holds.py"
FOUND = "tests/simulation/test_found.py::test_it_is_mended"
KEPT = "nobody keeps the user lock without the name"

NOT_OVERTAKEN = (
    "tests/contract/test_shared.py::test_writers_that_wait_behind_a_writer_are_not_overtaken"
)

USER_LOCKS = (
    Mutant(
        "a-writer-waits-in-the-server-for-a-shared-name",
        "no writer is overtaken by readers that come later",
        "ServerWait._for_readers",
        "state.shared",
        "False",
        f"{NOT_OVERTAKEN}[threads-mariadb-True]",
    ),
    Mutant(
        "readers-do-not-wait-for-those-in-the-server",
        "no writer is overtaken by readers that come later",
        "SharedAttempt.yields",
        "self.deadline.elapsed < self.patient",
        "False",
        f"{NOT_OVERTAKEN}[threads-mariadb-False]",
    ),
    Mutant(
        "the-user-lock-is-kept-without-the-row",
        KEPT,
        "UserLock.run",
        "elif step.first or step.last:\n    self._leave(connection)",
        "elif step.first or step.last:\n    self._give()",
        f"{HOLDING}::test_a_release_that_finds_its_row_in_use_lets_it_go",
    ),
    Mutant(
        "a-renewed-hold-keeps-the-user-lock",
        KEPT,
        "LeaseHold.begin",
        "self._leave_user_lock()",
        "",
        f"{HOLDING}::test_a_renewal_lets_it_go",
    ),
    Mutant(
        "a-lost-hold-keeps-the-user-lock",
        KEPT,
        "LeaseHold.lose",
        "self._leave_user_lock()",
        "",
        f"{HOLDING}::test_the_loss_itself_lets_it_go",
    ),
    Mutant(
        "a-name-left-to-run-out-keeps-the-user-lock",
        KEPT,
        "Lease._give_back",
        "hold.user_lock.drop()",
        "pass",
        f"{HOLDING}::test_a_name_that_is_left_to_run_out_has_no_user_lock",
    ),
    Mutant(
        "interrupted-and-keeps-the-user-lock",
        KEPT,
        "Lease._try_within",
        "if user_lock is not None:\n    self._runtime.undo(error, user_lock.drop)\n"
        "if not isinstance",
        "if not isinstance",
        f"{ENDS}::test_ctrl_c_at_each_statement[taken]",
    ),
    Mutant(
        "a-child-drops-its-parents-user-lock",
        "a lock cannot leak through a fork",
        "UserLock.drop",
        "leave_to_parent(connection)",
        "self._connections.drop(connection)",
        f"{ENDS}::test_a_forked_child_has_none_of_its_parents",
    ),
    Mutant(
        "past-the-deadline-in-the-server",
        "every wait has a deadline if asked",
        "ServerWait._patience",
        "self.waiter.piece(self.deadline.within(patience), self.deadline.now)",
        "self.waiter.piece(patience, self.deadline.now)",
        f"{WAITS}::test_the_deadline_is_kept_in_the_server[threads]",
    ),
    Mutant(
        "unavailable-without-a-user-lock",
        "a lock is refused to nobody because there is no user lock",
        "ServerWait._wait_in_server",
        "yield from self._end_wait(failure)",
        "raise",
        f"{WAITS}::test_no_connection_is_left_for_it",
    ),
    Mutant(
        "waits-in-the-server-past-the-expiry",
        "a lease that has run out is taken at once",
        "ServerWait._patience",
        "patience = min(patience, state.remaining)",
        "pass",
        f"{FOUND}[who waits at the gate of one that is stopped does not see its lease run out]",
    ),
    Mutant(
        "user-locks-without-end",
        "waiting is cheap",
        "UserLocks.admit",
        "if self.kept >= (2 * self.limit if user_lock.hot else self.limit):",
        "if False:",
        f"{WAITS}::test_so_many_when_all_come_at_once",
    ),
)
