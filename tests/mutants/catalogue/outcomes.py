"""Mutants of outcomes that were in doubt: acquired, not acquired, or unknown (promise 7)."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

SETTLING = "tests/faults/test_settling.py"
TIMEOUTS = "tests/faults/test_timeouts.py"
MATRIX = "tests/faults/test_matrix.py::test_every_statement_meets"

OUTCOMES = (
    Mutant(
        "settle-trusts-nothing",
        "a grant whose reply was lost is found by its token",
        "Attempt._found",
        "or not self.mine:",
        "or True:",
        f"{SETTLING}::test_a_request_that_cannot_be_stopped_is_the_same_hold[postgresql-threads]",
        dies_in="sqlite hand-off: b.join#2!unanswered",
    ),
    Mutant(
        "settle-too-early",
        'what was sent cannot come after it was said to be "not there"',
        "Doubt.end_sessions",
        "for session in tuple(self.sessions):",
        "for session in ():",
        f"{SETTLING}::test_a_request_that_arrives_after_it_was_looked_for_comes_to_nothing"
        "[postgresql-threads]",
        dies_in="model self-wait: b.grant#1!mute",
    ),
    Mutant(
        "ghost-row-lock",
        "what a lost connection had locked is not waited for",
        "row_lock._leave_no_ghost",
        "if failure.end is not None:",
        "if False:",
        f"{TIMEOUTS}::test_a_row_lock_is_not_its_own_rival[postgresql-threads]",
        dies_in="model row-and-lease: a.lock_row#2!mute",
    ),
    Mutant(
        "ghost-reader",
        "the session that a read lost does not stay on the server",
        "retry.retry_after",
        "yield from end_lost(lost, within)",
        "",
        f"{MATRIX}[postgresql-deaf]",
        dies_in="model forced: c.pass_on#1!deaf",
    ),
    Mutant(
        "no-read-deadline",
        "a server that acknowledges and never answers blocks nobody",
        "Sender._answer",
        "left, until = within, clock.now() + within",
        "left, until = within + 30, clock.now() + within + 30",
        f"{TIMEOUTS}::test_a_connection_that_fell_silent_is_replaced[postgresql-threads]",
        beyond=reasons.DRIVER,
    ),
    Mutant(
        "settle-skipped",
        "no lock is reported that was not granted",
        "Attempt._once",
        "self._take_doubt(failure)",
        "return False, Held(1, Term(self.exchange.now, self.request.ttl))",
        f"{SETTLING}::test_a_request_that_is_lost_is_repeated[postgresql-threads]",
        dies_in="sqlite guarded-late:",
    ),
    Mutant(
        "a-later-refusal-hides-a-doubt",
        "what is not known is said to be unknown",
        "Attempt._take_doubt",
        "raise self.told(self.exchange.explain(failure)) from",
        "raise self.exchange.explain(failure) from",
        "tests/contract/test_policy.py::test_a_later_refusal_says_nothing_of_the_try_before",
        dies_in="sqlite read-only: b.grant#1!unanswered",
    ),
    Mutant(
        "a-later-timeout-hides-a-doubt",
        "what is not known is said to be unknown",
        "acquire._refuse",
        "raise attempt.told(attempt.timed_out)",
        "raise attempt.timed_out",
        "tests/simulation/test_found.py::test_it_is_fixed",
        dies_in="sqlite read-only: b.grant#1!unanswered b.join#201!given-up:0.5",
    ),
    Mutant(
        "a-refused-set-up-ends-no-session",
        "no write arrives after one that was asked for later",
        "release.end_session",
        "if failure.fault in UNREACHED:",
        "if failure.fault in UNREACHED - {Fault.SETUP}:",
        "tests/faults/test_writing.py::"
        "test_a_late_value_replaces_no_newer_one_after_a_refused_set_up[postgresql-threads]",
        beyond="a connection that dblock itself refuses is not simulated",
    ),
    Mutant(
        "a-refused-set-up-is-an-expiry",
        "a holder is told why its lease is lost",
        "RenewalFailed.away",
        "UNREACHED | {Fault.REFUSED}",
        "UNREACHED - {Fault.SETUP} | {Fault.REFUSED}",
        f"{SETTLING}::test_a_lease_that_could_not_be_renewed_for_refused_set_ups_was_unreachable"
        "[postgresql-threads]",
        beyond=reasons.WHICH_ERROR,
    ),
    Mutant(
        "a-session-is-ended-without-time",
        "an outcome that can be found out is found out",
        "release.end_session",
        "max(until, reply.now + exchange.dialect.timing.leaving)",
        "until",
        "tests/protocol/test_acquire.py::test_a_doubt_is_closed_by_a_look_once_its_session_is_gone",
        beyond="an unknown outcome that could be known is no lie; a test of the protocol tells",
    ),
    Mutant(
        "a-wait-is-in-doubt",
        "what is known is not said to be unknown",
        "ServerWait._wait_in_server",
        "yield from self._end_wait(failure)",
        "if failure.fault is Fault.DISCONNECTED: raise",
        "tests/simulation/test_found.py::test_it_is_fixed",
        dies_in="mariadb outage: b.connect#2<+8",
    ),
    Mutant(
        "settled-keeps-the-handle",
        "a handle that is dropped is gone",
        "RenewalFailed.__post_init__",
        "self.failure.__traceback__ = None",
        "pass",
        f"{SETTLING}::test_a_dropped_handle_goes_at_once_whatever_was_settled[mariadb-threads]",
        dies_in="model dropped-handle: a.grant#1!unanswered a.renew#1!given-up:0.5",
    ),
    Mutant(
        "unknown-told-as-unavailable",
        "what is not known is said to be unknown",
        "Attempt.look",
        "if not self.unsure:\n    raise",
        "raise",
        f"{SETTLING}::test_an_outcome_that_cannot_be_found_out_is_unknown[postgresql-threads]",
        dies_in="sqlite outage: b.grant#1!mute",
    ),
)
