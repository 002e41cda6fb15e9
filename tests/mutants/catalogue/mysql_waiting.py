"""Mutants of MySQL's own statements about waiting, slots, readers, calls and rates."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

GATE = "tests/simulation/test_mysql.py"
SESSIONS = "tests/simulation/test_innodb.py"
RATES = "tests/contract/test_rate.py"
ONCE = "tests/contract/test_once.py"
PACKETS = "tests/connections/test_mysql_packets.py"
SETTINGS = "tests/databases/test_mysql_settings.py"
SLOTS = "tests/contract/test_semaphore.py"

MYSQL_WAITING = (
    Mutant(
        "a-lost-session-is-not-ended-on-mysql",
        "a lost session is ended",
        "mysql.MySQL.end_session",
        "'KILL CONNECTION %(number)s', 'DO 0'",
        "'DO 0', 'DO 0'",
        f"{SESSIONS}::test_what_a_session_had_is_free_when_it_has_been_ended[mysql]",
        beyond="what a lost session has is free later, when the server finds that it is lost",
    ),
    Mutant(
        "a-session-that-cannot-be-ended-is-a-defect",
        "a lost reply is settled where dblock cannot end a session",
        "mariadb.errors._FAULTS",
        "1461: Fault.REFUSED,",
        "",
        f"{SETTINGS}::test_a_lost_reply_is_settled_where_a_session_cannot_be_ended",
        beyond=reasons.SETTING,
    ),
    Mutant(
        "a-row-in-use-fails-a-packet",
        "a client that stops leaves no row locked",
        "mysql.base.MySQLTables.passing",
        'taken.replace("NOWAIT", "SKIP LOCKED")',
        "taken",
        f"{PACKETS}::test_a_client_that_stops_where_a_row_is_in_use_leaves_none_locked[grant-mysql]",
        beyond="a packet of the simulation's is one request, which its adapter ends by itself",
    ),
    Mutant(
        "a-sweep-waits-for-another-on-mysql",
        "a sweep skips the rows that another session has locked",
        "mysql.retiring.PruningStatements.sweep",
        "FOR UPDATE OF one SKIP LOCKED",
        "FOR UPDATE OF one",
        f"{PACKETS}::test_a_sweep_skips_what_is_locked_and_what_is_renewed[mysql]",
        beyond=reasons.COST,
    ),
    Mutant(
        "a-sweep-deletes-a-living-waiter-on-mysql",
        "the row of a waiter that lives stays",
        "mysql.retiring.PruningStatements.sweep",
        "ON one.id = old.id WHERE {REMAINING} <= 0",
        "ON one.id = old.id",
        f"{PACKETS}::test_a_sweep_skips_what_is_locked_and_what_is_renewed[mysql]",
        beyond="a waiter that is late renews its row within a sweep, which no scenario has",
    ),
    Mutant(
        "a-mere-try-locks-the-guards-row-on-mysql",
        "a guard does not fail because another process tries",
        "mysql.base.MySQLTables.take_row",
        "AS g WHERE g.lock_name = l.lock_name",
        "AS g WHERE g.lock_name = {name}",
        f"{PACKETS}::test_a_mere_try_locks_no_guards_row[held-mysql]",
        beyond="a guard at the moment of another process's try, which no scenario checks",
    ),
    Mutant(
        "unused-time-is-saved-up-on-mysql",
        "no more calls than the limit",
        "mysql.MySQL.take_place",
        "LEAST(fence - %(step)s, -@dblock_now - %(step)s)",
        "fence - %(step)s",
        f"{RATES}::test_unused_time_is_not_saved_up[threads-mysql]",
        dies_in="mysql rate-limit:",
    ),
    Mutant(
        "a-limit-is-exceeded-on-mysql",
        "no more calls than the limit",
        "mysql.MySQL.take_place",
        "AND %(step)s - fence <= @dblock_now + %(ahead)s",
        "",
        f"{RATES}::test_no_more_at_once_than_the_limit[threads-mysql]",
        dies_in="mysql rate-limit:",
    ),
    Mutant(
        "a-busy-slot-ends-the-search-on-mysql",
        "a free slot is had at once",
        "mysql.slots.SlotStatements._grant_slot",
        "({guard} FOR UPDATE SKIP LOCKED)",
        "({guard} FOR UPDATE NOWAIT)",
        f"{SLOTS}::test_a_slot_under_a_guard_is_not_taken[threads-mysql]",
        beyond="a guard on one slot while another is asked for, which no scenario has",
    ),
    Mutant(
        "a-key-is-new-again-on-mysql",
        "a call is made once",
        "mysql.row.RowStatements.claim_once",
        "{once}.expires_at <= UTC_TIMESTAMP(6)",
        "TRUE",
        f"{ONCE}::test_a_second_call_waits_for_the_result[threads-mysql]",
        dies_in="mysql once:",
    ),
    Mutant(
        "a-transaction-that-was-undone-goes-on",
        "a transaction that the server has undone is told",
        "mariadb.adapter.PyMySQL.classify_borrowed",
        "self.undoes_on_timeout",
        "False",
        "tests/databases/test_rollback_on_timeout.py::test_a_transaction_that_was_undone_is_told",
        beyond="a server that undoes more than a statement, which no scenario has",
    ),
    Mutant(
        "a-gate-does-not-ask-what-was-undone",
        "a transaction that the server has undone is told",
        "fencing._was_undone",
        "dialect.adapter.undoes_all(lambda query: transaction.execute(query).answer)",
        "False",
        "tests/databases/test_rollback_on_timeout.py::test_a_gate_says_so_without_a_locks",
        beyond="a server that undoes more than a statement, which no scenario has",
    ),
    Mutant(
        "a-wait-in-the-server-has-whole-seconds-on-mysql",
        "a waiter waits until its wait is over",
        "mysql.lease.LeaseStatements.wait_in_server",
        "round(seconds * 1000)",
        "2000 + round(seconds * 1000)",
        f"{GATE}::test_a_wait_ends_at_its_virtual_time_as_on_a_real_clock[wait_in_server]",
        dies_in="mysql short-wait:",
    ),
)
