"""Mutants of what is known of the drivers that have users' transactions."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BORROWED = "tests/connections/test_borrowed_drivers.py"
# As the test has it.
MOMENT = 0.25
SENDER = "tests/connections/test_mariadb_sender.py"
OPENING = "tests/connections/test_opening.py"
OWN_ENGINE = "tests/connections/test_own_engine.py"
DEAF = "tests/faults/test_borrowed_drivers.py::test_a_server_that_went_deaf"

DRIVERS = (
    Mutant(
        "an-answer-of-mariadbs-may-trickle",
        "an answer ends in time, however it arrives",
        "mariadb.reader.Reader.read",
        "left = self._until - clock.now()",
        "left = 1.0",
        "tests/faults/test_borrowed_drivers.py::test_an_answer_that_trickles[row-threads-mariadb]",
    ),
    Mutant(
        "a-greeting-of-mariadbs-may-trickle",
        "a connection is made in time, however the greeting arrives",
        "mariadb.connecting.connect",
        "shut_down_after(max(0.0, until - clock.now()), reached)",
        "shut_down_after(None, reached)",
        "tests/faults/test_timeouts.py"
        "::test_an_answer_that_trickles_is_given_up_as_one_that_does_not_come[mariadb-threads]",
    ),
    Mutant(
        "what-was-done-is-rolled-back",
        "a refused row lock leaves the user's transaction as it was",
        "postgresql.adapter.Psycopg.has_begun",
        "connection.pgconn.transaction_status != IDLE",
        "False",
        f"{BORROWED}::test_a_refusal_in_a_savepoint[{MOMENT}-threads-postgresql]",
    ),
    Mutant(
        "what-was-done-is-rolled-back-on-psycopg2",
        "a refused row lock leaves the user's transaction as it was",
        "Psycopg2.has_begun",
        "connection.info.transaction_status != IDLE",
        "False",
        f"{BORROWED}::test_a_refusal_in_a_savepoint[{MOMENT}-threads-postgresql+psycopg2]",
    ),
    Mutant(
        "a-failed-transaction-is-left",
        "a refused row lock leaves the user's transaction usable",
        "BorrowedTransaction.start_over",
        "connection.dialect.do_rollback(connection.connection)",
        "pass",
        f"{BORROWED}::test_a_refusal_before_all_else[{MOMENT}-threads-postgresql]",
    ),
    Mutant(
        "psycopg2-waits-for-ever",
        "a wait in a user's transaction ends, whoever does not answer",
        "Psycopg2.bounded",
        "shut_down_after(within, connection)",
        "shut_down_after(None, connection)",
        f"{DEAF}[row-threads-postgresql+psycopg2]",
    ),
    Mutant(
        "asyncpg-waits-for-ever",
        "a wait in a user's transaction ends, whoever does not answer",
        "Asyncpg.bounded",
        "ended_after(within, ",
        "ended_after(None, ",
        f"{DEAF}[guard-asyncio-postgresql+asyncpg]",
    ),
    Mutant(
        "deadline-told-as-a-broken-line",
        "who gave up is told",
        "answer_deadline.ended_after",
        "failure.timed_out or bool(over)",
        "failure.timed_out",
        f"{DEAF}[row-threads-mariadb+mysqldb]",
    ),
    Mutant(
        "asyncpg-locks-in-autocommit",
        "nothing is said to be locked that is not",
        "Asyncpg.transaction_problem",
        "locking and connection.autocommit",
        "False",
        f"{BORROWED}::test_autocommit[asyncio-postgresql+asyncpg]",
    ),
    Mutant(
        "aiomysql-locks-in-autocommit",
        "nothing is said to be locked that is not",
        "mariadb.drivers.problem_of",
        "locking and connection.get_autocommit()",
        "False",
        f"{BORROWED}::test_autocommit[asyncio-mariadb+aiomysql]",
    ),
    Mutant(
        "asyncpg-in-a-failed-transaction",
        "a transaction that has failed before is told as that",
        "Asyncpg.failed_before",
        'getattr(error, "sqlstate", None) == IN_FAILED_TRANSACTION',
        "False",
        f"{BORROWED}::test_a_transaction_that_has_failed[asyncio-postgresql+asyncpg]",
    ),
    Mutant(
        "asyncpg-plan-of-another-table",
        "a transaction that only wants to be run again is no replica's",
        "Asyncpg.classify",
        'kind == "InvalidCachedStatementError"',
        "False",
        f"{BORROWED}::test_a_statement_is_of_another_table[asyncio-postgresql+asyncpg]",
    ),
    Mutant(
        "plan-of-another-table",
        "a transaction that only wants to be run again is no replica's",
        "postgresql.errors.fault_of",
        "(state, raised_in) == _STALE_PLAN",
        "False",
        f"{BORROWED}::test_a_statement_is_of_another_table[threads-postgresql]",
    ),
    Mutant(
        "an-encoding-of-before",
        "a name means the same row whatever the session's encoding has become",
        "opening.Opener.open",
        "adapt = self._adapt = type(self._adapt)(connection)",
        "adapt = self._adapt",
        f"{OPENING}::test_the_encoding_is_that_of_now[postgresql]",
    ),
    Mutant(
        "begun-in-another-threads-transaction",
        "no transaction of another thread's is begun in, or undone",
        "opening.Opener.open",
        "with connection.lock:\n    if pgconn.transaction_status != IDLE:",
        "with connection.lock:\n    if False:",
        f"{OPENING}::test_a_transaction_of_another_thread_is_left[postgresql]",
    ),
    Mutant(
        "notified-and-not-told",
        "what is notified while dblock reads is heard by who listens there",
        "Opener._hand_on_notifies",
        "pgconn.notify_handler(notify)",
        "pass",
        f"{OPENING}::test_what_is_notified_meanwhile_is_heard[postgresql]",
    ),
    Mutant(
        "what-listeners-did-is-undone",
        "a refused row lock leaves the user's transaction as it was",
        "Borrowed.run",
        "self.begin()",
        "pass",
        f"{OPENING}::test_what_begins_with_the_transaction_stays[postgresql]",
    ),
    Mutant(
        "each-locks-prepares-anew",
        "several Locks on one connection use what is prepared there",
        "sqlalchemy_transaction._cached_for",
        "if found is None else found.opener",
        "",
        f"{OPENING}::test_two_locks_share_what_is_prepared[postgresql]",
    ),
    Mutant(
        "a-prepared-statement-is-there-for-ever",
        "what a session of MariaDB's has forgotten is sent as it is",
        "mariadb.sender.Sender.send",
        "not in _GONE",
        "not in ()",
        f"{SENDER}::test_what_is_forgotten_is_sent_as_it_is[mariadb]",
    ),
    Mutant(
        "no-room-for-a-prepared-statement",
        "a lease needs no statement that the server has prepared",
        "mariadb.sender.Sender._prepare",
        "self._adapter.classify(error) is not None",
        "True",
        f"{SENDER}::test_a_server_that_has_too_many[mariadb]",
    ),
    Mutant(
        "deadlock-of-mysqlclient",
        "a unit of work that a deadlock ended is run again",
        "mariadb.drivers.MySQLdb.classify",
        "self.package",
        '"pymysql"',
        "tests/contrib/test_retrying.py::test_a_deadlock[mariadb+mysqldb]",
    ),
    Mutant(
        "counter-of-another-driver",
        "a counter serves transactions of several drivers",
        "CounterTable.once",
        "transaction.driver.package, name",
        '"", name',
        "tests/aio/test_borrowed.py::test_a_counter_with_two_drivers",
    ),
    Mutant(
        "password-of-yesterday",
        "dblock's own connections have the password that the user's have now",
        "own_engine._now",
        "for listener in events.do_connect:",
        "for listener in ():",
        f"{OWN_ENGINE}::test_a_password_of_the_moment[threads-mariadb+mysqldb]",
    ),
    Mutant(
        "tls-of-anybody",
        "dblock's own connections verify what the user's verify",
        "arguments._verified",
        'return {"ssl": _by_the_machine(tls)}',
        "pass",
        f"{OWN_ENGINE}::test_a_name_is_verified_without_an_authority_of_ones_own",
    ),
)
