"""The mutants: what each breaks, and the test that has to fail for it."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.asynchronous import ASYNCHRONOUS
from tests.mutants.by_token import BY_TOKEN
from tests.mutants.clusters import CLUSTERS
from tests.mutants.contrib import CONTRIB
from tests.mutants.crashes import CRASHES
from tests.mutants.drivers import DRIVERS
from tests.mutants.elections import ELECTIONS
from tests.mutants.fencing import FENCING
from tests.mutants.functions import FUNCTIONS
from tests.mutants.handing_over import HANDING_OVER
from tests.mutants.jobs import JOBS
from tests.mutants.keeper import KEEPER
from tests.mutants.look_alikes import LOOKS_ALIKE
from tests.mutants.mutant import Mutant
from tests.mutants.once import ONCE
from tests.mutants.passing_on import PASSING_ON
from tests.mutants.places import PLACES
from tests.mutants.presets import PRESET
from tests.mutants.reading import READING
from tests.mutants.retiring import RETIRING
from tests.mutants.secrets import SECRETS
from tests.mutants.service import SERVICE
from tests.mutants.service_events import SERVICE_EVENTS
from tests.mutants.slots import SLOTS
from tests.mutants.testing import TESTING
from tests.mutants.user_locks import USER_LOCKS
from tests.mutants.waiters import WAITERS
from tests.mutants.waiting import CALLS

BESIDE = "tests/contract/test_row_beside_lease.py"
PLANTED = "tests/faults/test_planted.py"
EXACT, ROOM = "tests/contract/test_counter_exact.py", "tests/contract/test_counter_room.py"
STRIPES = "tests/contract/test_counter_stripes.py"
CONNECTING = "tests/faults/test_connecting.py"
REGRESSIONS = "tests/contract/test_regressions.py"
OWNERSHIP = "tests/contract/test_ownership.py"
SETTLING = "tests/faults/test_settling.py"
WRITING = "tests/faults/test_writing.py"
DOUBT = "test_a_release_after_one_that_is_in_doubt"
TIMEOUTS = "tests/faults/test_timeouts.py"
COSTS = "tests/faults/test_round_trips.py"
FORK = "tests/processes/test_fork_gc.py"
INTERRUPTS = "tests/processes/test_interrupts.py"
MATRIX = "tests/faults/test_matrix.py::test_every_statement_meets"
TAKEN_OVER = f"{PLANTED}::test_a_holder_that_was_taken_over"
WAITS = f"{PLANTED}::test_a_takeover_waits_for_a_guarded_transaction"
# A number that is drawn once for an acquire, when its first try begins.
DRAWN = (
    "{__import__('builtins').__dict__.setdefault('drawn', dict())"
    ".setdefault(token, __import__('time').time_ns())}"
)
CALLERS_TOKEN = "__import__('sys')._getframe(1).f_locals['token']"
TRAP_4 = f"{PLANTED}::test_a_try_that_began_before_another_hold_has_the_later_fence"
CLOCK = f"{PLANTED}::test_a_wrong_clock_here_takes_no_lease_from_others"

CATALOGUE = (
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
        "if not keep(reply):",
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
        "MultiLock.try_within",
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
        "return None if self._private else holds[-1]",
        "return None",
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
        "Lease.renew",
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
        "self._take,",
        f"self._take.replace(NEXT_FENCE + ',', f\"{DRAWN},\"),",
        f"{TRAP_4}[postgresql]",
        dies_in="postgresql dying-holders: b.take#1+1.7",
    ),
    Mutant(
        "fence-drawn-early-mariadb",
        "fences grow in the order of the holds, not of the tries",
        "mariadb.lease.LeaseStatements._grant",
        "LAST_INSERT_ID(fence + 1)",
        f"LAST_INSERT_ID({DRAWN.replace('token', CALLERS_TOKEN)})",
        f"{TRAP_4}[mariadb]",
        dies_in="mariadb three: b.wait_in_server#1+0.05",
    ),
    Mutant(
        "fence-starts-again",
        "a fence outlives the holds of its name",
        "postgresql.lease.LeaseStatements._release",
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
    # --- 4: only the holder releases or renews
    Mutant(
        "release-without-token-postgresql",
        "only the holder releases",
        "postgresql.lease.LeaseStatements._release",
        "WHERE lock_name = %(name)s AND token = %(token)s AND",
        "WHERE lock_name = %(name)s AND",
        f"{TAKEN_OVER}[postgresql-release]",
        dies_in="postgresql forced-long:",
    ),
    Mutant(
        "release-without-token-mariadb",
        "only the holder releases",
        "mariadb.lease.LeaseStatements.release",
        "WHERE lock_name = %(name)s AND token = %(token)s",
        "WHERE lock_name = %(name)s",
        f"{TAKEN_OVER}[mariadb-release]",
        dies_in="mariadb forced-long:",
    ),
    Mutant(
        "release-without-token-sqlite",
        "only the holder releases",
        "sqlite.lease.LeaseStatements._release",
        "WHERE lock_name = :name AND token = :token",
        "WHERE lock_name = :name",
        f"{TAKEN_OVER}[sqlite-release]",
        dies_in="sqlite forced:",
    ),
    Mutant(
        "release-counts-no-rows",
        "a release that freed nothing says so",
        "release.release",
        "if reply.matched == 1:",
        "if True:",
        f"{PLANTED}::test_a_holder_that_was_released_by_force[postgresql]",
        dies_in="model forced: a.renewer.renew#1<+1.7",
    ),
    Mutant(
        "repeated-release-is-a-loss",
        "a release whose reply was lost succeeds when it is repeated",
        "release.release",
        "if in_doubt:\n    return",
        "if False:\n    return",
        f"{SETTLING}::test_a_release_whose_reply_is_lost_touches_no_later_hold[postgresql-threads]",
        dies_in="sqlite long-work: a.release#1!deaf",
    ),
    Mutant(
        "a-broken-undo-is-a-refusal",
        "a transaction whose connection broke is not tried in again",
        "Borrowed._execute_or_undo",
        "if failure.fault is Fault.DISCONNECTED:",
        "if False:",
        f"{SETTLING}::test_a_connection_that_breaks_while_a_savepoint_is_undone[threads-postgresql]",
    ),
    Mutant(
        "release-in-doubt-is-told-as-none",
        "a release that may have been carried out is told to be unknown",
        "release.release",
        "if in_doubt:\n    raise",
        "if False:\n    raise",
        f"{WRITING}::{DOUBT}[postgresql-threads-cannot be ended]",
        beyond=reasons.WHICH_ERROR,
    ),
    Mutant(
        "release-in-doubt-is-forgotten",
        "a release whose reply was lost succeeds when it is repeated",
        "lease.Lease._end",
        "hold.in_doubt = hold.in_doubt or not (told or after)",
        "pass",
        f"{WRITING}::{DOUBT}[postgresql-threads-can be ended]",
    ),
    # --- 5: the database's clock
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
        "postgresql.lease.LeaseStatements._grant",
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
        "Attempt._take_doubt",
        "failure.fault is Fault.CANCELED and not self.dialect.failure_aborts",
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
        "Term(self.deadline.start, self.request.ttl)",
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
        "state, reply = yield from look_from(dialect, name, patience, proof.now)",
        (
            "if proof.given:\n"
            "    return\n"
            "state, reply = yield from look_from(dialect, name, patience, proof.now)"
        ),
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
    # --- 7: the outcome is told truthfully
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
        "retry.retry",
        "if lost:\n    yield from end_lost(lost, within)",
        "",
        f"{MATRIX}[postgresql-deaf]",
        dies_in="model reader: c.look#1!mute",
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
        "return False, Held(1, Term(self.deadline.now, self.request.ttl))",
        f"{SETTLING}::test_a_request_that_is_lost_is_repeated[postgresql-threads]",
        dies_in="sqlite guarded-late:",
    ),
    Mutant(
        "a-later-refusal-hides-a-doubt",
        "what is not known is said to be unknown",
        "Attempt._take_doubt",
        "raise self.told(error) from",
        "raise error from",
        "tests/contract/test_policy.py::test_a_later_refusal_says_nothing_of_the_try_before",
        dies_in="sqlite read-only: b.grant#1!unanswered",
    ),
    Mutant(
        "a-later-timeout-hides-a-doubt",
        "what is not known is said to be unknown",
        "acquire._refuse",
        "raise attempt.told(attempt.timed_out)",
        "raise attempt.timed_out",
        "tests/simulation/test_found.py::test_it_is_mended",
        dies_in="sqlite read-only: b.grant#1!unanswered b.join#201!given-up:0.5",
    ),
    Mutant(
        "a-session-is-ended-without-time",
        "an outcome that can be found out is found out",
        "release.end_session",
        "max(until, reply.now + dialect.timing.leaving)",
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
        "tests/simulation/test_found.py::test_it_is_mended",
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
        "Lease._undo",
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
    # --- costs
    Mutant(
        "refused-try-writes",
        "a refused try writes nothing",
        "postgresql.lease.LeaseStatements._grant",
        "WHERE NOT EXISTS (TABLE taken)\n"
        "    AND NOT EXISTS (SELECT FROM {self.lock_table} WHERE lock_name = %(name)s)\n"
        "ON CONFLICT (lock_name) DO NOTHING",
        "ON CONFLICT (lock_name) DO UPDATE SET owner = excluded.owner WHERE false",
        f"{COSTS}::test_a_refused_try_writes_nothing_on_postgresql[lease]",
        dies_in="postgresql nights:",
    ),
    Mutant(
        "release-waits-for-the-disk",
        "a pair of acquire and release is one sync",
        "postgresql.lease.LeaseStatements._release",
        "RETURNING {LAZY}",
        "RETURNING 1",
        f"{COSTS}::test_a_pair_of_acquire_and_release_is_one_sync",
        beyond=reasons.COST,
    ),
    Mutant(
        "a-newer-row-is-not-seen",
        "a free name is granted",
        "Attempt._mend",
        "return (position.free or out) and",
        "return out and",
        f"{PLANTED}::test_a_try_that_finds_a_newer_row_than_it_has_read_is_granted",
        dies_in="model killed-waiters:",
    ),
    Mutant(
        "release-reads-the-whole-table",
        "a lease costs the same among many",
        "postgresql.lease.LeaseStatements._release",
        "WHERE lock_name = %(name)s",
        "WHERE lock_name || '' = %(name)s",
        f"{COSTS}::test_no_statement_of_one_name_reads_the_whole_table",
        beyond=reasons.COST,
    ),
    # --- counters
    Mutant(
        "counter-without-floor",
        "take never goes below the floor",
        "Numbers.room",
        "least if floor is None else max(least, floor)",
        "least",
        f"{PLANTED}::test_a_counter_stays_above_its_floor_and_counts_a_key_once[sqlite]",
        dies_in="sqlite stock:",
    ),
    Mutant(
        "counter-forgets-keys",
        "a change with an idempotency key is made once",
        "CounterTable.record",
        "return False",
        "return True",
        f"{PLANTED}::test_a_counter_stays_above_its_floor_and_counts_a_key_once[postgresql]",
    ),
    Mutant(
        "counter-takes-from-every-row",
        "a counter changes one row, or none",
        "CounterTable.alone",
        "many.scalar_subquery() == 1",
        "many.scalar_subquery() >= 1",
        "tests/contract/test_counter_key.py::"
        "test_a_change_of_a_key_that_two_rows_have_changes_nothing[threads-postgresql]",
    ),
    Mutant(
        "stripes-below-the-floor",
        "a stripe alone is taken from only if it keeps the floor of all",
        "counters.stripes.StripedTable._shift_one",
        "rounded(value, numbers).between(least, most)",
        "rounded(value, numbers) <= most",
        f"{STRIPES}::test_what_one_row_does_not_have[threads-postgresql]",
    ),
    Mutant(
        "stripes-wait-in-line",
        "nobody waits while a stripe is free",
        "counters.stripes.StripedTable._shift_one",
        "skip_locked=free",
        "skip_locked=False",
        f"{STRIPES}::test_nobody_waits_while_a_row_is_free[threads-postgresql]",
    ),
    Mutant(
        "stripes-gathered-without-locks",
        "a sum that is taken from is nobody else's to change",
        "counters.stripes.StripedTable._gather",
        "rows = self._rows(transaction, key, lock=True)",
        "rows = self._rows(transaction, key, lock=False)",
        f"{STRIPES}::test_what_others_are_taking_is_waited_for[threads-postgresql]",
    ),
    Mutant(
        "counter-never-locks",
        "an optimistic update that lost a race locks the row",
        "Counter.update",
        "lock = number > 1 or self._runtime.now() < self._hot_until",
        "lock = False",
        "tests/contract/test_counter_races.py::"
        "test_update_keeps_others_off_after_a_lost_race[threads-postgresql]",
    ),
    Mutant(
        "counter-rounds",
        "an amount that the column cannot hold exactly is refused",
        "numbers._EXACTLY",
        "traps=[Inexact, InvalidOperation]",
        "traps=[InvalidOperation]",
        f"{EXACT}::test_decimals_that_a_numeric_would_round[threads-postgresql]",
    ),
    Mutant(
        "counter-trusts-the-model",
        "what a column holds is what the database says of it",
        "SessionTable.kind",
        "if kind is None or isinstance(kind, NullType):",
        "if True:",
        f"{EXACT}::test_a_column_that_is_not_what_the_model_says",
    ),
    Mutant(
        "counter-trusts-the-model-of-a-domain",
        "what a column holds is what the database says of it",
        "SessionTable.kind",
        "kind = kind.data_type",
        "kind = None",
        f"{EXACT}::test_a_domain_of_a_domain",
    ),
    Mutant(
        "counter-compares-what-a-model-rounds",
        "an update ends, however the model reads the number",
        "CounterTable.read",
        "if to_compare:",
        "if False:",
        f"{EXACT}::test_a_value_that_the_model_rounds",
    ),
    Mutant(
        "counter-forgets-decimals-of-doubles",
        "an amount that the column cannot hold exactly is refused",
        "Numbers.of",
        "or (floating and scale is not None)",
        "or False",
        f"{EXACT}::test_floating_point_with_decimals",
    ),
    Mutant(
        "counter-overflows",
        "no statement of a counter's fails for the column's size",
        "Numbers.room",
        "most = _difference(most, n)",
        "pass",
        f"{ROOM}::test_no_room_for_more[threads-postgresql-NUMERIC(4, 2)]",
    ),
    Mutant(
        "counter-below-unsigned",
        "a counter never takes what the column cannot be without, floor or not",
        "Numbers.of",
        "least = 0 if unsigned else -(2 ** (bits - 1))",
        "least = -(2 ** (bits - 1))",
        f"{ROOM}::test_unsigned_columns",
    ),
    Mutant(
        "counter-keeps-a-key",
        "a change that was refused leaves no key",
        "Counter._change_in",
        "if idempotency_key is not None and not dialect.failure_aborts:",
        "if False:",
        f"{ROOM}::test_a_constraint_of_the_users[threads-mariadb]",
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
    Mutant(
        "no-change-is-made-again",
        "who takes once meets no deadlock",
        "BorrowedTransaction.note_whether_fresh",
        "not self.driver.has_begun(self.driver_connection)",
        "False",
        f"{STRIPES}::test_who_takes_once_meets_no_deadlock[threads-postgresql]",
        beyond=reasons.COUNTERS,
    ),
    Mutant(
        "what-was-done-before-is-lost",
        "a change that is made again loses nothing of the user's",
        "BorrowedTransaction.note_whether_fresh",
        "not self.driver.has_begun(self.driver_connection)",
        "True",
        f"{STRIPES}::test_what_a_transaction_did_before_is_not_lost[threads-postgresql]",
        beyond=reasons.COUNTERS,
    ),
    Mutant(
        "counter-blames-the-amount",
        "who is refused is told the reason",
        "Counter._refusal",
        "not full and _between(least, value, most)",
        "not full and False",
        f"{ROOM}::test_a_trigger_keeps_the_row[threads-sqlite]",
    ),
    Mutant(
        "counter-compares-floats",
        "nothing is compared that was rounded when it was read",
        "Counter._check_comparable",
        "if self._columns.version is None and numbers.inexact:",
        "if False:",
        f"{EXACT}::test_floating_point[threads-mariadb-FLOAT]",
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
        "if refused and self._beside is not None else None",
        "if False else None",
        f"{CONNECTING}::test_at_the_limit_of_a_role[postgresql-threads]",
    ),
    *KEEPER,
    *ASYNCHRONOUS,
    *CALLS,
    *USER_LOCKS,
    *PASSING_ON,
    *CRASHES,
    *DRIVERS,
    *WAITERS,
    *CLUSTERS,
    *CONTRIB,
    *JOBS,
    *SECRETS,
    *SERVICE_EVENTS,
    *TESTING,
    *LOOKS_ALIKE,
    *PRESET,
    *RETIRING,
    *FENCING,
    *FUNCTIONS,
    *PLACES,
    *HANDING_OVER,
    *BY_TOKEN,
    *ONCE,
    *ELECTIONS,
    *SERVICE,
    *SLOTS,
    *READING,
)
