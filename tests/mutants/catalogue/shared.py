"""Mutants that break what is promised of readers that share a name."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

CONTRACT = "tests/contract/test_shared.py"
WAITING = "tests/contract/test_shared_waiting.py"
EXPIRY = "tests/contract/test_shared_expiry.py"
FAULTS = "tests/faults/test_shared.py"
BESIDE = "a writer is beside nobody"

SHARED = (
    Mutant(
        "a-dead-writer-keeps-out-who-does-not-wait",
        "readers go past a writer that has died, however short they wait",
        "SharedAttempt._has_patience_ended",
        "lasted = max(lasted, state.lasted)",
        "pass",
        f"{WAITING}"
        "::test_a_writer_that_was_killed_keeps_out_no_reader_that_does_not_wait[threads-sqlite]",
        beyond="what a reader that does not wait is told, and for how long",
    ),
    Mutant(
        "a-writer-stands-in-the-queue-unseen",
        "a writer that waits is not overtaken by readers that come later",
        "Polling.stand",
        "if look and self._among_readers and self.server() is None:",
        "if False:",
        f"{WAITING}"
        "::test_a_writer_that_lives_is_seen_as_soon_as_it_stands_in_the_queue[threads-sqlite]",
        beyond=reasons.ORDER_OF_WAITERS,
    ),
    Mutant(
        "the-first-reader-frees-it",
        BESIDE,
        "readers.ReaderLists.last",
        'return f"NOT {self.listed} OR {self.without_me} = token"',
        'return "TRUE"',
        f"{CONTRACT}::test_readers_keep_a_writer_out_until_the_last_has_gone",
        dies_in="sqlite reader-dies:",
    ),
    Mutant(
        "a-writer-is-joined",
        BESIDE,
        "SharedAttempt._shared",
        "state.held and is_shared(state.token)",
        "state.held",
        f"{CONTRACT}::test_a_writer_keeps_readers_out",
        dies_in="model readers-wait:",
    ),
    Mutant(
        "a-group-that-ran-out-is-joined",
        BESIDE,
        "sqlite.lease.ReaderStatements.join_readers",
        "AND token = :group AND expires_at > {NOW}",
        "AND token = :group",
        f"{EXPIRY}::test_a_group_that_ran_out_is_not_joined[threads-sqlite]",
        dies_in="sqlite reader-just-in-time: b.join_readers#1+1",
    ),
    Mutant(
        "a-group-that-ran-out-is-joined-on-postgresql",
        BESIDE,
        "postgresql.readers.ReaderStatements.join_readers",
        "AND mine.expiry > clock_timestamp()",
        "",
        f"{EXPIRY}::test_a_group_that_ran_out_is_not_joined[threads-postgresql]",
        dies_in="postgresql reader-just-in-time: b.join_readers#1+1",
    ),
    Mutant(
        "a-reader-brings-the-expiry-forward",
        "no reader brings the expiry of another forward",
        "sqlite.lease.ReaderStatements.join_readers",
        "expires_at = max(expires_at, {LATER})",
        "expires_at = {LATER}",
        f"{EXPIRY}::test_a_reader_lets_it_last_for_its_own_ttl[threads-sqlite]",
        dies_in="sqlite readers:",
    ),
    Mutant(
        "a-renewal-brings-the-expiry-of-readers-forward",
        "no reader brings the expiry of another forward",
        "sqlite.lease.LeaseStatements.renew",
        'iif({shared("l.token")}, max(expires_at, {later}), {later})',
        "{later}",
        f"{EXPIRY}::test_a_reader_lets_it_last_for_its_own_ttl[threads-sqlite]",
        dies_in="sqlite readers-for-long:",
    ),
    Mutant(
        "readers-of-one-process-are-renewed-for-the-last-ttl",
        "no reader brings the expiry of another forward",
        "renew._renewals",
        "if known.ttl < renewal.ttl:",
        "if False:",
        f"{EXPIRY}::test_readers_of_one_program_are_renewed_at_once",
        beyond="which of two renewals of one row a statement carries out",
    ),
    Mutant(
        "what-is-given-back-is-everybodys",
        "a reader releases its own share and no other",
        "release._ending",
        "if is_shared(token):",
        "if False:",
        f"{FAULTS}::test_an_interrupted_try_takes_nobody_elses_share",
        dies_in="model readers: b.join_readers#1!pause:9",
    ),
    Mutant(
        "a-writer-that-waits-is-overtaken",
        "a writer that waits is not overtaken by readers that come later",
        "postgresql.readers.ReaderStatements.join_readers",
        "AND (%(past)s OR {self.ahead} = 0)",
        "",
        f"{WAITING}::test_a_writer_that_waits_keeps_new_readers_out[threads-postgresql]",
        beyond="in which order readers and writers come; the contract's tests tell",
    ),
    Mutant(
        "readers-that-wait-are-not-called",
        "readers that waited for a writer come in together",
        "SharedAttempt._call_readers",
        "if self.exchange.dialect.traits.can_notify and self.request.tickets:",
        "if False:",
        f"{WAITING}::test_readers_do_not_wait_to_look_by_themselves[threads-postgresql-times0]",
        beyond=reasons.READERS_POLL,
    ),
    Mutant(
        "readers-behind-a-writer-that-gave-up-are-not-called",
        "a writer that gives up lets those readers in that wait behind it",
        "postgresql.queue.QueueStatements.leave",
        "CASE WHEN {shared()} THEN {CALL_READERS} END",
        "NULL",
        f"{WAITING}::test_a_writer_that_gives_up_lets_readers_in[threads-postgresql-times0]",
        beyond=reasons.READERS_POLL,
    ),
    Mutant(
        "readers-wait-for-readers",
        "readers share the name, however many of them wait",
        "postgresql.queue.QueueStatements.ahead",
        "NOT ({_WITH_ME}) AND ",
        "",
        f"{WAITING}::test_readers_that_wait_keep_no_reader_out[threads-postgresql]",
        beyond="a reader that waits a moment longer breaks no promise; the contract's tests tell",
    ),
    Mutant(
        "an-upgrade-waits-for-itself",
        "a caller that would wait for its own share is told",
        "TakeableLease._try_within",
        "shares=self._shares",
        "shares=True",
        f"{CONTRACT}::test_an_upgrade_says_what_it_is",
    ),
)
