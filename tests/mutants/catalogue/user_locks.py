"""Mutants of waiting in the server, for a name's user lock, on MariaDB (promise 10)."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

WAITS = "tests/waiting/test_server_wait.py"
GRANT = "tests/waiting/test_server_wait_grant.py"
ENDS = "tests/waiting/test_server_wait_ends.py"
HOLDING = "tests/waiting/test_server_wait_holds.py"
FOUND = "tests/simulation/test_found.py::test_it_is_fixed"
STARVING = "tests/waiting/test_starving.py"
STARVES = "nobody starves where waiters are not called"
KEPT = "nobody keeps the user lock without the name"

NOT_OVERTAKEN = (
    "tests/contract/test_shared_waiting.py"
    "::test_writers_that_wait_behind_a_writer_are_not_overtaken"
)

USER_LOCKS = (
    Mutant(
        "a-writer-waits-in-the-server-for-a-shared-name",
        "no writer is overtaken by readers that come later",
        "ServerWait._for_readers",
        "state.shared",
        "False",
        f"{NOT_OVERTAKEN}[threads-mariadb-True]",
        beyond=reasons.ORDER_OF_WAITERS,
    ),
    Mutant(
        "readers-do-not-wait-for-those-in-the-server",
        "no writer is overtaken by readers that come later",
        "SharedAttempt.yields",
        "self.exchange.elapsed < self.patient",
        "False",
        f"{NOT_OVERTAKEN}[threads-mariadb-False]",
        beyond=reasons.ORDER_OF_WAITERS,
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
        "HeldLease._give_back",
        "hold.user_lock.drop()",
        "pass",
        f"{HOLDING}::test_a_name_that_is_left_to_run_out_has_no_user_lock",
    ),
    Mutant(
        "interrupted-and-keeps-the-user-lock",
        KEPT,
        "TakeableLease._try_within",
        "if taking.user_lock is not None:\n"
        "    self._database.runtime.undo(error, taking.user_lock.drop)\n"
        "if not isinstance",
        "if not isinstance",
        f"{ENDS}::test_ctrl_c_at_each_statement[mariadb-taken]",
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
        "self.waiter.piece(self.exchange.capped(patience), self.exchange.now)",
        "self.waiter.piece(patience, self.exchange.now)",
        f"{WAITS}::test_the_deadline_is_kept_in_the_server[mariadb-threads]",
        dies_in="mariadb short-wait:",
    ),
    Mutant(
        "unavailable-without-a-user-lock",
        "a lock is refused to nobody because there is no user lock",
        "ServerWait._wait_in_server",
        "yield from self._end_wait(failure)",
        "raise",
        f"{WAITS}::test_no_connection_is_left_for_it",
        dies_in="mariadb beside-two-without-gates:",
    ),
    Mutant(
        "waits-in-the-server-past-the-expiry",
        "a lease that has run out is taken at once",
        "ServerWait._patience",
        "patience = min(patience, state.remaining)",
        "pass",
        f"{FOUND}[who waits at the gate of one that is stopped does not see its lease run out]",
        dies_in="mariadb three: b.grant#3!pause:9",
    ),
    Mutant(
        "user-locks-without-end",
        "waiting is cheap",
        "UserLocks.admit",
        "if self.kept >= (2 * self.limit if user_lock.hot else self.limit):",
        "if False:",
        f"{WAITS}::test_so_many_when_all_come_at_once",
    ),
    Mutant(
        "mariadb-has-no-user-locks",
        "where nobody is called, one asks and the server wakes the others",
        "MariaDB.traits",
        "can_wait_in_server=True",
        "can_wait_in_server=False",
        f"{WAITS}::test_one_asks_and_the_server_wakes_the_others_in_their_order[mariadb-threads]",
        beyond=reasons.COST,
    ),
    Mutant(
        "newcomers-come-first-on-mariadb",
        STARVES,
        "mariadb.lease.LeaseStatements._available",
        "({LAST} + {self.taken_elsewhere})",
        "{LAST}",
        f"{WAITS}::test_who_only_comes_now_is_held_up_for_a_moment",
        beyond="how soon, not whether: who is overtaken stands in the queue then",
    ),
    Mutant(
        "granted-by-halves-on-mariadb",
        "a grant decides once",
        "mariadb.lease.LeaseStatements._grant",
        (
            "LAST_INSERT_ID(fence + 1),\n"
            "    token = %(token)s, owner = %(owner)s, waiters = {rest},\n"
            "    acquired_at = SYSDATE(6), expires_at = {LATER}"
            """{f", {NOTED}" if shares else ""}\"\"\"\n"""
            "return self.take_row(name, changes, free)"
        ),
        (
            "LAST_INSERT_ID(fence + {free}),\n"
            "    token = IF({free}, %(token)s, token), owner = %(owner)s, waiters = {rest},\n"
            "    acquired_at = SYSDATE(6), expires_at = IF({free}, {LATER}, expires_at)"
            """{f", {NOTED}" if shares else ""}\"\"\"\n"""
            'return self.take_row(name, changes, "TRUE")'
        ),
        f"{GRANT}::test_who_lets_the_user_lock_go_while_it_is_looked_at",
        dies_in="mariadb fair-trio:",
    ),
    Mutant(
        "one-user-lock-for-all-databases",
        "databases of one server have nothing to do with each other",
        "ServerWaitStatements.lock_of_users",
        "CONCAT_WS('/', %(user_lock)s, DATABASE()))\"",
        '%(user_lock)s)"',
        f"{WAITS}::test_another_database_has_user_locks_of_its_own",
        dies_in="mariadb another-database:",
    ),
    Mutant(
        "a-name-given-back-keeps-its-user-lock",
        "who gives a name back lets its user lock go",
        "mariadb.lease.LeaseStatements.release_and_unlock",
        "DO RELEASE_LOCK({self.lock_of_users});",
        "",
        f"{ENDS}::test_one_statement_lets_the_name_go_and_its_user_lock",
        dies_in="mariadb passed-for-long:",
    ),
    Mutant(
        "fair-waits-in-the-server",
        "waiters are served in the order of arrival where that is asked for",
        "waiting.way_to_wait",
        "options.in_server and options.policy.endless and not options.fair",
        "options.in_server and options.policy.endless",
        f"{WAITS}::test_none_for_who_keeps_the_order_counts_its_tries_or_does_not_wait",
        dies_in="mariadb beside-two:",
    ),
    Mutant(
        "counted-tries-wait-in-the-server",
        "a retry policy is kept to",
        "waiting.way_to_wait",
        "options.in_server and options.policy.endless and not options.fair",
        "options.in_server and not options.fair",
        f"{WAITS}::test_none_for_who_keeps_the_order_counts_its_tries_or_does_not_wait",
        dies_in="mariadb short-wait:",
    ),
    Mutant(
        "a-stale-user-lock-is-waited-for",
        "whoever died or hangs keeps a free name for a moment at most",
        "ServerWait._patience",
        "patience = min(patience, dialect.grace)",
        "pass",
        f"{WAITS}::test_a_stale_user_lock_keeps_the_name_from_nobody",
        dies_in="mariadb three: b.wait_in_server#1!pause:9",
    ),
    Mutant(
        "any-number-of-user-locks-at-once",
        "waiting takes few connections",
        "UserLocks.kept",
        "user_lock.admitted and not user_lock.inherited",
        "user_lock.kept",
        f"{WAITS}::test_so_many_when_all_come_at_once",
    ),
    Mutant(
        "interrupted-and-still-in-the-server",
        "a waiter that is interrupted leaves no trace",
        "UserLock.run",
        "orphaned.append(connection.session.end)",
        "pass",
        f"{ENDS}::test_a_task_that_is_cancelled_while_waiting_in_the_server",
    ),
    Mutant(
        "as-many-user-locks-for-a-hot-name",
        STARVES,
        "UserLocks.admit",
        "2 * self.limit if user_lock.hot else self.limit",
        "self.limit",
        f"{WAITS}::test_so_many_when_all_come_at_once",
    ),
    Mutant(
        "neither-in-the-server-nor-in-the-queue",
        STARVES,
        "ServerWait._wait_in_server",
        "self.lock.open = self.lock.open and failure.fault in UNDONE",
        "pass",
        f"{STARVING}::test_who_gets_no_user_lock",
        dies_in="mariadb beside-two-without-gates:",
    ),
    Mutant(
        "outranked-for-ever-with-the-user-lock",
        STARVES,
        "ServerWait.queues",
        "return overtaken or self._for_readers or not self.lock.open",
        "return self._for_readers or not self.lock.open",
        f"{STARVING}::test_who_has_the_user_lock_while_others_queue",
        dies_in="mariadb beside-two:",
    ),
)
