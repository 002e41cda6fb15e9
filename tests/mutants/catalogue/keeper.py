"""Mutants of the renewal and of the keeper (promises 4, 5, 7 and 8)."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

PLANTED = "tests/faults/test_planted.py"
TAKEN_OVER = f"{PLANTED}::test_a_holder_that_was_taken_over"
EXPIRED = "tests/contract/test_loss.py::test_what_has_expired_is_not_renewed"
CONTRACT, TELLS = "tests/contract/test_keeper.py", "tests/contract/test_keeper_tells.py"
ONE_BUSY = f"{CONTRACT}::test_one_busy_row_is_the_only_one_missed[threads-mariadb]"
BATCH, DUE = "tests/protocol/test_renew.py", "tests/protocol/test_schedule.py"
ENDING = "tests/protocol/test_ending.py"
PROCESSES = "tests/processes/test_keeper.py"

KEEPER = (
    Mutant(
        "a-stopped-thread-keeps-the-lock",
        "an interpreter ends, whatever its daemon threads were at",
        "process_lock.take_over",
        "lock._at_fork_reinit()",
        "lock.acquire()",
        "tests/processes/test_exit.py::"
        "test_a_process_ends_whose_daemon_thread_is_stopped_within_the_lock[a finalizer-sqlite]",
    ),
    Mutant(
        "a-hold-that-is-given-back-is-lost",
        "what is given back here is not lost, whoever looks",
        "HeldLease._lose",
        "if hold.ended and not ending:",
        "if False:",
        "tests/contract/test_guard.py::test_a_release_beside_a_guard_is_no_loss[threads-sqlite-lease]",
        dies_in="sqlite used-while-given-back: a.2.update#2+0.05",
    ),
    # --- 15: not two, although another server takes over
    Mutant(
        "another-server-is-believed",
        "a hold is not trusted on another server",
        "renew.renew_all",
        "if hold.held.elsewhere(reply.server):",
        "if False:",
        f"{BATCH}::test_another_server_is_not_believed",
        dies_in="model moved:",
    ),
    Mutant(
        "another-server-is-believed-by-a-guard",
        "a hold is not trusted on another server",
        "guard.guard",
        "failed_over(name) if held().elsewhere(reply.server) else None",
        "None",
        "tests/protocol/test_guard.py::test_another_server_is_not_believed",
        beyond="another check refuses first, wherever both can be simulated",
    ),
    # --- 4: only the holder renews
    Mutant(
        "renew-without-token-postgresql",
        "only the holder renews",
        "postgresql.lease.LeaseStatements.renew",
        (
            "ON k.lock_name = asked.lock_name AND k.token = asked.token\n"
            "                JOIN present ON k.fence > present.epoch\n"
            "                FOR NO KEY UPDATE OF k SKIP LOCKED\n"
            "            )\n"
            "            UPDATE {self.lock_table} AS l\n"
            "            SET expires_at = greatest(\n"
            "                clock_timestamp() + pg_catalog.make_interval(secs => mine.ttl),\n"
            '                CASE WHEN {shared("l.token")} THEN mine.expires_at END)\n'
            "            FROM mine WHERE l.lock_name = mine.lock_name AND l.token = "
            "mine.token"
        ),
        (
            "ON k.lock_name = asked.lock_name\n"
            "                JOIN present ON k.fence > present.epoch\n"
            "                FOR NO KEY UPDATE OF k SKIP LOCKED\n"
            "            )\n"
            "            UPDATE {self.lock_table} AS l\n"
            "            SET expires_at = greatest(\n"
            "                clock_timestamp() + pg_catalog.make_interval(secs => mine.ttl),\n"
            '                CASE WHEN {shared("l.token")} THEN mine.expires_at END)\n'
            "            FROM mine WHERE l.lock_name = mine.lock_name"
        ),
        f"{TAKEN_OVER}[postgresql-renew]",
        dies_in="postgresql forced-long:",
    ),
    Mutant(
        "renew-without-token-mariadb",
        "only the holder renews",
        "mariadb.lease.LeaseStatements.renew",
        "AND l.token = asked.token",
        "",
        f"{TAKEN_OVER}[mariadb-renew]",
        dies_in="mariadb forced-long:",
    ),
    Mutant(
        "renew-without-token-sqlite",
        "only the holder renews",
        "sqlite.lease.LeaseStatements.renew",
        "AND l.token = json_extract(asked.value, '$[1]')",
        "",
        f"{TAKEN_OVER}[sqlite-renew]",
        dies_in="sqlite forced-long:",
    ),
    Mutant(
        "renew-counts-no-rows",
        "a renewal that renewed nothing says so",
        "renew.renew_all",
        "hold.renewal.token in renewed",
        "True",
        f"{PLANTED}::test_a_holder_that_was_released_by_force[mariadb]",
        dies_in="sqlite forced-long:",
    ),
    Mutant(
        "keeper-counts-no-rows",
        "the keeper notices what it did not renew",
        "renew.renew_all",
        "hold.renewal.token in renewed",
        "True",
        f"{BATCH}::test_all_losses_are_explained_by_one_look",
        dies_in="sqlite forced-long:",
    ),
    Mutant(
        "renew-counts-one-for-all-mariadb",
        "a batch with a lost hold in it is not renewed as a whole",
        "mariadb.lease.LeaseStatements.renew",
        "= JSON_LENGTH(holds)",
        "> 0",
        f"{CONTRACT}::test_one_that_was_lost_is_the_only_one_not_renewed[threads-mariadb]",
        beyond="which of several renewals a statement carries out",
    ),
    Mutant(
        "renewed-rows-are-locked-again-mariadb",
        "what a commit has renewed is told as renewed",
        "mariadb.lease.LeaseStatements.renew",
        "SELECT COUNT(*) INTO moved FROM {renewed};\n                IF moved =",
        "IF (SELECT COUNT(*) FROM {renewed}) =",
        f"{CONTRACT}::test_a_row_that_is_busy_after_its_renewal[threads-mariadb]",
        beyond="between two statements of one that is sent as one",
    ),
    # --- 5: expiry
    Mutant(
        "renew-revives-postgresql",
        "what has expired is not renewed",
        "postgresql.lease.LeaseStatements.renew",
        "AND mine.expires_at > clock_timestamp()",
        "",
        f"{EXPIRED}[threads-postgresql]",
        dies_in="postgresql-volatile renewed-by-hand-alone: a.renew#2+8",
    ),
    Mutant(
        "renew-revives-mariadb",
        "what has expired is not renewed",
        "mariadb.lease.LeaseStatements.renew",
        "WHERE expires_at > SYSDATE(6);",
        ";",
        f"{EXPIRED}[threads-mariadb]",
        dies_in="mariadb at-least: b.renew#1+8",
    ),
    Mutant(
        "renew-revives-sqlite",
        "what has expired is not renewed",
        "sqlite.lease.LeaseStatements.renew",
        "AND l.expires_at > {NOW}",
        "",
        f"{EXPIRED}[threads-sqlite]",
        dies_in="sqlite at-least: a.renew#1!late:1",
    ),
    Mutant(
        "term-from-the-renewals-reply",
        "the holder's own deadline is counted from before its request",
        "renew.renew_all",
        "Term(reply.sent, hold.renewal.ttl)",
        "Term(reply.now, hold.renewal.ttl)",
        f"{PLANTED}::test_the_term_starts_before_the_request[mariadb-threads]",
        dies_in="model alone: a.renewer.renew#1<+0.9",
    ),
    # --- 7: what is lost leaves nothing behind
    Mutant(
        "ghost-renewer",
        "the session that a renewal lost does not stay on the server",
        "renew.renew_all",
        "yield from end_lost(lost, within)",
        "",
        "tests/faults/test_matrix.py::test_every_statement_meets[mariadb-deaf]",
        dies_in="model given-back-while-renewed: a.renewer.renew#1!deaf",
    ),
    Mutant(
        "loss-keeps-a-connection",
        "who keeps a lost lease keeps no half-made connection open",
        "Connector.connect",
        "traceback.clear_frames(raised.__traceback__)",
        "pass",
        "tests/faults/test_matrix.py::test_every_statement_meets[postgresql-server stopped]",
    ),
    Mutant(
        "renewal-repeated-to-the-dead",
        "a renewal that cannot reach the server is told without another try",
        "retry.end_lost",
        "if failure.fault in UNREACHED:\n    raise",
        "pass",
        f"{ENDING}::test_where_that_does_not_get_through_the_repetition_is_spent",
        beyond=reasons.COST,
    ),
    # --- 8: loss is told in time
    Mutant(
        "renewed-after-the-deadline",
        "a renewal is due long before the lease is over",
        "schedule.RENEWAL_SHARE",
        "RENEWAL_SHARE = 1 / 3",
        "RENEWAL_SHARE = 0.95",
        f"{DUE}::test_the_order_of_a_term",
        dies_in="model long-work:",
    ),
    Mutant(
        "missed-renewals-are-gathered",
        "a missed renewal is not repeated without a pause",
        "RenewalSchedule.gather",
        "if self.cause is not None:\n    return self.due",
        "",
        f"{DUE}::test_what_was_missed_is_tried_again_soon",
        beyond=reasons.COST,
    ),
    Mutant(
        "held-longer-than-the-longest",
        "a lease is never held past max_hold",
        "RenewalSchedule.length",
        "return min(length, self._began + self._plan.max_hold - now)",
        "return length",
        f"{DUE}::test_never_held_longer",
        dies_in="sqlite max-hold:",
    ),
    Mutant(
        "unreachable-told-as-expired",
        "who lost a lease with its database is told so",
        "RenewalSchedule.loss",
        "if self.cause is not None and self._away:",
        "if False:",
        f"{DUE}::test_the_reason",
        dies_in="sqlite away:",
    ),
    Mutant(
        "one-busy-row-fails-all",
        "a busy row does not keep the others from renewal",
        "renew.renew_all",
        "elif failure.fault is Fault.BUSY and len(batch) > 1",
        "elif False",
        ONE_BUSY,
        dies_in="mariadb busy-row:",
    ),
    Mutant(
        "renew-reads-the-whole-table",
        "a busy row does not keep the others from renewal",
        "mariadb.lease.LeaseStatements.renew",
        "FORCE INDEX (PRIMARY)",
        "",
        ONE_BUSY,
        dies_in="mariadb busy-row:",
    ),
    Mutant(
        "renewed-after-a-release",
        "what was given back is renewed no more",
        "LeaseHold.keepable",
        "return not self.ended and self.loss is None",
        "return self.loss is None",
        f"{CONTRACT}::test_a_release_that_failed_is_not_renewed[threads-postgresql]",
        dies_in="model given-back-while-renewed:",
    ),
    Mutant(
        "release-during-a-renewal",
        "a release comes after the renewal that is under way",
        "LeaseHold.end",
        "if self.renewing:",
        "if False:",
        f"{CONTRACT}::test_a_release_waits_for_the_renewal_under_way[threads-mariadb]",
        dies_in="model given-back-while-renewed: a.renewer.renew#1+0.05",
    ),
    Mutant(
        "revived-after-the-loss",
        "an answer that comes after the loss revives nothing",
        "Keeper._settle",
        "if not hold.keepable(now):\n    continue",
        "",
        f"{TELLS}::test_an_answer_that_comes_late_revives_nothing[threads-mysql]",
        dies_in="model given-back-while-renewed:",
    ),
    Mutant(
        "only-the-first-danger",
        "every term's danger is told, before its loss",
        "Keeper._look_at",
        "if not schedule.warned and schedule.danger <= now:",
        "if False:",
        f"{TELLS}::test_danger_then_loss_then_another_holder[threads-sqlite]",
        dies_in="sqlite guarded-late:",
    ),
    Mutant(
        "dropped-handles-are-kept",
        "a lease whose handle is dropped runs out",
        "Keeper.keep",
        "self._kept[ref(hold, self._forget)] = None",
        (
            "self._kept[ref(hold, self._forget)] = None; self.__dict__.setdefault('all', "
            "[]).append(hold)"
        ),
        f"{CONTRACT}::test_a_lease_whose_handle_is_dropped_runs_out[threads-mysql]",
        dies_in="sqlite dropped-handle:",
    ),
    Mutant(
        "a-child-keeps-its-parents",
        "a forked child does not keep its parent's holds",
        "keeper.keeper",
        "begins_anew(Keeper(Runtime()))",
        "Keeper(Runtime())",
        f"{PROCESSES}::test_a_forked_child_keeps_its_own_and_nothing_else[sqlite]",
    ),
    Mutant(
        "a-belief-that-never-ends",
        "whoever observes is told when a holder stops believing, before its name is free",
        "HandleHolds.take",
        "if believed and hold.runtime.observer is not None:",
        "if False:",
        "tests/contract/test_beliefs.py::"
        "test_before_the_statement_that_gives_it_back[threads-sqlite]",
        dies_in="model anothers:",
    ),
    Mutant(
        "keeper-woken-by-each",
        "the timer is not woken for what is not due",
        "Keeper._watch",
        "if self._kept or self._came else math.inf",
        "if self._kept else math.inf",
        f"{CONTRACT}::test_leases_that_come_and_go_do_not_wake_the_timer[threads-mysql]",
    ),
    Mutant(
        "keeper-takes-signals",
        "the keeper's threads leave signals to the application",
        "platform.block_signals",
        "signal.valid_signals()",
        "[]",
        f"{PROCESSES}::test_the_keepers_threads_take_no_signals",
    ),
)
