"""Mutants of expiry by the database's clock, and of the holder's own deadline (promise 5)."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

PLANTED = "tests/faults/test_planted.py"
TIMEOUTS = "tests/faults/test_timeouts.py"
CLOCK = f"{PLANTED}::test_a_wrong_clock_here_takes_no_lease_from_others"

EXPIRY = (
    Mutant(
        "free-by-the-transactions-start",
        "expiry is judged by the time it is, not that of the transaction's start",
        "postgresql.fragments.FREE",
        "expires_at <= clock_timestamp())",
        "expires_at <= now())",
        f"{PLANTED}::test_a_transaction_that_began_before_the_expiry_sees_it",
        dies_in="postgresql row-in-an-older-transaction:",
    ),
    Mutant(
        "expiry-by-the-clients-clock-postgresql",
        "expiry is the database's clock alone",
        "postgresql.lease.LeaseStatements",
        "clock_timestamp() + pg_catalog.make_interval(",
        "to_timestamp({__import__('time').time()}) + pg_catalog.make_interval(",
        f"{CLOCK}[postgresql]",
        count=6,
        dies_in="postgresql renewed-by-hand:",
    ),
    Mutant(
        "first-expiry-by-the-clients-clock-postgresql",
        "expiry is the database's clock alone",
        "postgresql.lease.LeaseStatements.grant_any",
        "clock_timestamp() + pg_catalog.make_interval(",
        "to_timestamp({__import__('time').time()}) + pg_catalog.make_interval(",
        f"{CLOCK}[postgresql]",
        dies_in="postgresql hand-off:",
    ),
    Mutant(
        "expiry-by-the-clients-clock-sqlite",
        "expiry is the database's clock alone",
        "fragments.modifier",
        'return f"{seconds:+.3f} seconds"',
        (
            "import time\n"
            "\n"
            "from datetime import datetime, UTC\n"
            "\n"
            "off = time.time() - datetime.now(UTC).timestamp()\n"
            'return f"{off + seconds:+.3f} seconds"'
        ),
        f"{CLOCK}[sqlite]",
        dies_in="sqlite hand-off:",
    ),
    Mutant(
        "term-from-the-grants-reply",
        "the holder's own deadline is counted from before its request",
        "Attempt._once",
        "term = self._term(outcome.remaining, reply.sent)",
        "term = self._term(outcome.remaining, reply.now)",
        f"{PLANTED}::test_the_term_starts_before_the_request[postgresql-threads]",
        dies_in="model hand-off: a.grant#1!pause:9",
    ),
    Mutant(
        "term-from-the-later-try",
        "the term of a grant is not counted from after an earlier try that may be the one",
        "Attempt._once",
        "term = self._term(outcome.remaining, reply.sent)",
        "term = Term(reply.sent, self.request.ttl)",
        "tests/contract/test_policy.py::test_a_grant_after_a_lost_reply_may_be_the_earlier_one",
        dies_in="sqlite hand-off: a.grant#1!late:1 a.look#1<+1.7",
    ),
    Mutant(
        "given-up-is-refused",
        "a try that the server gave up is not told as a name that others have",
        "acquire._refuse",
        "if attempt.timed_out is not None and attempt.seen.position.free:",
        "if False:",
        f"{TIMEOUTS}::test_a_grant_that_the_server_gave_up_is_told_as_that[postgresql-threads-0]",
        dies_in="model alone: a.grant#1!given-up:4",
    ),
    Mutant(
        "given-up-by-the-client-is-refused",
        "a try that no server answered is not told as a name that others have",
        "Attempt._take_doubt",
        " or (broken and failure.timed_out)",
        "",
        f"{TIMEOUTS}::test_a_grant_that_the_server_gave_up_is_told_as_that[mysql-threads-0]",
        beyond=reasons.WHICH_ERROR,
    ),
    Mutant(
        "once-refused-for-ever",
        "who was refused a name has it when it is free",
        "acquire.acquire",
        "if wait == 0 and not attempt.promising:",
        "if wait == 0:",
        "tests/faults/test_round_trips.py::test_who_was_refused_looks_before_it_asks_again[sqlite]",
        dies_in="model tries-beside-waiters: c.sleep#2+1.7",
    ),
    Mutant(
        "looks-for-ever",
        "an uncontended lease is one statement to take",
        "Names.note",
        "self._taken.discard(name)",
        "pass",
        "tests/faults/test_round_trips.py::test_who_was_refused_looks_before_it_asks_again[sqlite]",
    ),
    Mutant(
        "given-up-is-in-doubt",
        "a statement that the server gave up was undone, whole",
        "doubt.may_be_executed",
        "failure.fault is Fault.CANCELED and not exchange.dialect.traits.failure_aborts",
        "failure.fault is Fault.CANCELED",
        f"{TIMEOUTS}::test_a_grant_is_undone_where_the_database_cannot_be_asked[threads]",
        dies_in="model outage: b.grant#1!given-up:2.5",
    ),
    Mutant(
        "given-up-waiters-stay",
        "who waits no longer, by the server's will, is not shown any more",
        "waiters._answered",
        "return isinstance(error, QueryTimeout) or isinstance(error.__cause__, QueryTimeout)",
        "return False",
        f"{TIMEOUTS}::test_a_wait_that_the_server_ended_leaves_no_trace[postgresql-threads]",
        dies_in="model just-in-time: b.take#1!given-up:4",
    ),
    Mutant(
        "term-from-before-the-wait",
        "a lost reply shortens no later grant's term",
        "Attempt._term",
        "Term(sent - max(0.0, self.request.ttl - remaining), self.request.ttl)",
        "Term(self.exchange.start, self.request.ttl)",
        "tests/protocol/test_acquire.py::test_what_is_granted_is_believed_for_what_remained_of_it",
        dies_in="model renewed-by-hand: b.register#1!promote:1",
    ),
    Mutant(
        "in-doubt-for-ever",
        "a doubt is over once it is settled",
        "Attempt.look",
        "if doubt is not None and not doubt.haunted:",
        "if False:",
        "tests/protocol/test_acquire.py::test_a_doubt_is_closed_by_a_look_once_its_session_is_gone",
        dies_in="model read-only: b.grant#1!unanswered",
    ),
    Mutant(
        "settled-while-its-session-lives",
        "what is not known is said to be unknown",
        "Attempt.look",
        "if doubt is not None and not doubt.haunted:",
        "if doubt is not None:",
        "tests/protocol/test_acquire.py::test_a_doubt_is_closed_by_a_look_once_its_session_is_gone",
        dies_in="sqlite outage: b.grant#1!late:1",
    ),
)
