"""Mutants of exclusion, fences, self-waits and the guard (promises 1, 2, 3 and 6)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BESIDE = "tests/contract/test_row_beside_lease.py"
PLANTED = "tests/faults/test_planted.py"
REGRESSIONS = "tests/contract/test_regressions.py"
OWNERSHIP = "tests/contract/test_ownership.py"
FORK = "tests/processes/test_fork_gc.py"
WAITS = f"{PLANTED}::test_a_takeover_waits_for_a_guarded_transaction"
# A number that is drawn once for an acquire, when its first try begins.
DRAWN = (
    "__import__('builtins').__dict__.setdefault('drawn', dict())"
    ".setdefault(command.token, __import__('time').time_ns())"
)
TRAP_4 = f"{PLANTED}::test_a_try_that_began_before_another_hold_has_the_later_fence"

EXCLUSION = (
    # --- 1: mutual exclusion
    Mutant(
        "row-lock-over-a-lease",
        "a row lock is refused while a lease is on the name",
        "postgresql.row.RowStatements.lock_row",
        'WHERE lock_name = %(name)s AND {FREE} AND EXISTS (TABLE open)"',
        'WHERE lock_name = %(name)s AND EXISTS (TABLE open)"',
        f"{PLANTED}::test_a_row_lock_does_not_come_over_a_lease[postgresql]",
        dies_in="postgresql row-and-lease:",
    ),
    Mutant(
        "row-lock-at-once-over-a-lease",
        "nor in the user's transaction",
        "postgresql.row.RowStatements.lock_row",
        "AND {FREE}\nAND EXISTS ({self.epoch(OPEN)})",
        "AND EXISTS ({self.epoch(OPEN)})",
        f"{PLANTED}::test_nor_in_the_users_transaction[postgresql]",
        dies_in="postgresql-volatile borrowed-row:",
    ),
    Mutant(
        "a-row-lock-in-a-leases-way",
        "a refused row lock leaves nothing locked in the user's transaction",
        "Borrowed._execute_or_undo",
        "if not keep(reply.answer):",
        "if False:",
        f"{BESIDE}::test_nothing_is_in_the_leases_way[threads-postgresql-0]",
    ),
    Mutant(
        "lease-ignores-row-locks",
        "a lease is refused, not queued, while the row is locked",
        "LeaseStatements._taken",
        "FOR UPDATE OF k SKIP LOCKED",
        "",
        f"{PLANTED}::test_a_lease_does_not_wait_for_a_row_lock[postgresql]",
        dies_in="postgresql row-for-long:",
    ),
    Mutant(
        "names-without-case",
        "names are exact",
        "Tables.key",
        "return name.encode()",
        "return name.lower().encode()",
        f"{PLANTED}::test_names_are_exact[mariadb]",
        dies_in="mariadb names-alike:",
    ),
    Mutant(
        "together-without-a-last-look",
        "several locks are all held when their body begins",
        "MultiLock._acquire",
        "if refusal is not None or self._last():",
        "if True:",
        f"{REGRESSIONS}::test_together_does_not_begin_with_a_lease_that_ran_out[threads-mariadb]",
        dies_in="sqlite together-slowly:",
    ),
    Mutant(
        "prepared-behind-a-pooler",
        "a statement runs as it was written, on whatever backend",
        "Psycopg.prepare_connection",
        "if backend != connection.info.backend_pid:",
        "if False:",
        f"{REGRESSIONS}::test_statements_prepared_on_another_backend_of_the_pooler",
        beyond="statements that a pooler's backend has prepared for others",
    ),
    Mutant(
        "reentrant-released-by-anybody",
        "a hold that can be taken again is its holder's alone, as an RLock's",
        "HandleHolds.find",
        "return None if self._private else holds[-1]",
        "return holds[-1]",
        f"{OWNERSHIP}::test_as_threadings_own_locks[threads-sqlite-reentrant]",
        dies_in="model anothers:",
    ),
    Mutant(
        "released-by-its-thread-alone",
        "who has the handle may release what another thread took, as a Lock",
        "HandleHolds.find",
        "return holds[0]  # whichever caller has it",
        "return holds[0] if holds[0].caller is self._callers.mine() else None",
        f"{OWNERSHIP}::test_as_threadings_own_locks[threads-sqlite-lease]",
        dies_in="model anothers:",
    ),
    Mutant(
        "anothers-hold-first",
        "who lost its hold is told so, and leaves that of the next one",
        "HandleHolds.find",
        "if hold.caller is mine:",
        "if False:",
        f"{OWNERSHIP}::test_a_loss_is_for_who_had_the_hold[threads-sqlite-False]",
        dies_in="model reentrant:",
    ),
    Mutant(
        "released-by-two-at-once",
        "one release ends a hold, the other finds none",
        "HandleHolds.take",
        "self._holds.remove(hold)",
        "self._holds.index(hold)",
        f"{OWNERSHIP}::test_of_two_who_release_at_once_one_has_done_it[threads-sqlite-lease]",
        dies_in="sqlite released-at-once:",
    ),
    Mutant(
        "shortened-when-told",
        "the holder's deadline is never later than the expiry",
        "HeldLease.renew",
        "if asked.deadline < held.term.deadline:",
        "if False:",
        f"{REGRESSIONS}::test_an_interrupted_renewal_to_less_is_believed_to_have_happened[threads-mariadb]",
        dies_in="model renewed-by-hand: a.renew#2!deaf",
    ),
    Mutant(
        "warns-before-it-drops",
        "a row lock cannot leak through a warning that is an error",
        "OwnTransaction.__del__",
        "self.drop()",
        "warnings.warn('a held row lock was garbage-collected', ResourceWarning)",
        f"{FORK}::test_a_dropped_row_lock_is_free_where_warnings_are_errors[sqlite]",
    ),
    # --- 2: fences
    Mutant(
        "fence-drawn-early-postgresql",
        "fences grow in the order of the holds, not of the tries",
        "LeaseStatements.take",
        "def take(self) -> str:",
        f"def take(self, command):\n    NEXT_FENCE = {DRAWN}",
        f"{PLANTED}::test_a_refused_take_from_the_queue_draws_no_fence",
        dies_in="postgresql dying-holders: b.take#1+1.7",
    ),
    Mutant(
        "fence-drawn-early-mariadb",
        "fences grow in the order of the holds, not of the tries",
        "mariadb.lease.LeaseStatements.grant",
        "return self._grant_known if command.known else self._grant_new",
        f"return self._grant_new.replace('fence + 1', str({DRAWN}))",
        f"{TRAP_4}[mariadb]",
        dies_in="mariadb three: b.wait_in_server#1+0.05",
    ),
    Mutant(
        "fence-starts-again",
        "a fence outlives the holds of its name",
        "postgresql.lease.LeaseStatements.release",
        "UPDATE {self.lock_table} SET token = NULL, expires_at = clock_timestamp()",
        "DELETE FROM {self.lock_table}",
        "tests/contract/test_fence.py::"
        "test_over_release_takeover_force_and_new_locks[threads-postgresql]",
        dies_in="postgresql-volatile killed-waiters:",
    ),
    # --- 3: no waiting for ever
    Mutant(
        "self-wait",
        "a thread that would wait for itself is told at once",
        "CallerRegistry.refuse_self_wait",
        "if held is None and not (",
        "if True or not (",
        f"{PLANTED}::test_a_thread_does_not_wait_for_itself[sqlite]",
        dies_in="model self-wait:",
    ),
    Mutant(
        "together-unsorted",
        "several locks are taken in one order by all",
        "MultiLock.__init__",
        "sorted(locks, key=lambda lock: lock.name)",
        "locks",
        f"{PLANTED}::test_several_locks_are_taken_in_the_order_of_their_names[postgresql]",
        dies_in="sqlite together: a.grant#1<+1.7",
    ),
    Mutant(
        "oversleep",
        "no sleep goes past the deadline",
        "RetryPolicy.sleep_after",
        "sleep = min(sleep, left)",
        "pass",
        f"{PLANTED}::test_a_sleep_ends_at_the_deadline",
        dies_in="mariadb give-up-late:",
    ),
    Mutant(
        "a-row-lock-outlives-its-savepoint",
        "a thread is told that it waits for itself only if it does",
        "Savepoints.rolled_back",
        "function(root)",
        "pass",
        "tests/contract/test_self_wait.py::test_a_lock_that_went_with_its_savepoint"
        "[threads-postgresql-False-session]",
    ),
    # --- 6: the guard
    Mutant(
        "guard-without-a-lock-postgresql",
        "a takeover waits for the guarded transaction",
        "postgresql.row.RowStatements.guard",
        "FOR KEY SHARE SKIP LOCKED",
        "",
        f"{WAITS}[postgresql]",
        dies_in="postgresql guarded-late:",
    ),
    Mutant(
        "guard-without-a-lock-mariadb",
        "a takeover waits for the guarded transaction",
        "mariadb.row.RowStatements.guard",
        "LOCK IN SHARE MODE NOWAIT",
        "",
        f"{WAITS}[mariadb]",
        dies_in="mariadb guarded-late:",
    ),
    Mutant(
        "grant-past-a-guard-mariadb",
        "a takeover waits for the guarded transaction",
        "mariadb.base.Tables.take_row",
        "if self.clustered:",
        (
            'if True: return f"UPDATE {self.lock_table} SET {changes} "\\\n'
            '    f"WHERE lock_name = {name} AND {condition}"\n'
            "if self.clustered:"
        ),
        f"{WAITS}[mariadb]",
        dies_in="mariadb guarded-late:",
    ),
    Mutant(
        "guard-without-a-look",
        "a stale holder cannot commit",
        "guard.guard",
        "state, reply = yield from look_from(exchange)",
        ("if proof.given:\n    return\nstate, reply = yield from look_from(exchange)"),
        f"{PLANTED}::test_a_lease_that_is_over_guards_nothing[postgresql]",
        dies_in="sqlite guarded-late: a.update#1<+8",
    ),
    Mutant(
        "guard-by-the-holders-clock",
        "a stale holder cannot commit, whatever it believes",
        "guard.guard",
        "loss = loss or loss_of(state, name, token, held(), reply.now)\nif loss is None and",
        "loss = None\nif not proof.given or",
        f"{PLANTED}::test_a_lease_that_is_over_guards_nothing[mariadb]",
        dies_in="sqlite forced:",
    ),
)
