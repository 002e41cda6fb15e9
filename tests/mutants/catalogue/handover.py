"""Mutants that break what is promised of a handover: `detach` and `attach`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS, FAULTS = "tests/contract/test_handover.py", "tests/faults/test_handover.py"
TRACES = "tests/protocol/test_traces.py::test_what_is_asked_for"
TWICE = f"{TESTS}::test_attached_twice"
GUARD = f"{TESTS}::test_a_guard_ends_before_another_goes_on"
RUN_OUT = f"{TESTS}::test_run_out"
OVER = "a hold that has run out goes on nowhere"
ONCE = "a hold goes on in one place"
GUARDED = "what the holder before has guarded ends before another goes on"

HANDOVER = (
    Mutant(
        "attached-when-it-has-run-out-on-postgresql",
        OVER,
        "postgresql.lease.LeaseStatements.attach",
        "AND mine.expires_at > clock_timestamp()",
        "",
        f"{RUN_OUT}[threads-postgresql]",
        dies_in="postgresql attached-too-late:",
    ),
    Mutant(
        "attached-when-it-has-run-out-on-mariadb",
        OVER,
        "mariadb.lease.LeaseStatements.attach",
        "AND expires_at > SYSDATE(6)",
        "",
        f"{RUN_OUT}[threads-mariadb]",
        dies_in="mariadb attached-too-late:",
    ),
    Mutant(
        "attached-when-it-has-run-out-on-sqlite",
        OVER,
        "sqlite.lease.LeaseStatements.attach",
        "AND expires_at > {NOW}",
        "",
        f"{RUN_OUT}[threads-sqlite]",
        dies_in="sqlite attached-too-late:",
    ),
    Mutant(
        "attached-under-a-guard-on-postgresql",
        GUARDED,
        "postgresql.lease.LeaseStatements.attach",
        "FOR UPDATE OF k",
        "FOR NO KEY UPDATE OF k",
        f"{GUARD}[threads-postgresql]",
        dies_in="postgresql detached-under-a-guard:",
    ),
    Mutant(
        "attached-under-a-guard-on-mariadb",
        GUARDED,
        "mariadb.lease.LeaseStatements.attach",
        'self.take_row("%(name)s", changes, ',
        'f"UPDATE {self.lock_table} SET {changes} WHERE lock_name = %(name)s AND " + (',
        f"{GUARD}[threads-mariadb]",
        dies_in="mariadb detached-under-a-guard:",
    ),
    Mutant(
        "attached-in-another-epoch",
        "a hold of before a failover goes on nowhere",
        "postgresql.lease.LeaseStatements.attach",
        "JOIN present ON k.fence > present.epoch",
        "JOIN present ON true",
        f"{FAULTS}::test_another_epoch",
        dies_in="postgresql attached-twice: b.attach#1!promote c.connect#1+1",
    ),
    Mutant(
        "attached-with-any-token",
        ONCE,
        "sqlite.lease.LeaseStatements.attach",
        "WHERE lock_name = :name AND token = :token AND",
        "WHERE lock_name = :name AND",
        f"{TWICE}[threads-sqlite]",
        dies_in="sqlite attached-twice:",
    ),
    Mutant(
        "attached-with-the-token-of-before",
        ONCE,
        "sqlite.lease.LeaseStatements.attach",
        "SET token = :new_token,",
        "SET token = :token,",
        f"{TWICE}[threads-sqlite]",
        dies_in="sqlite attached-twice:",
    ),
    Mutant(
        "attached-elsewhere-and-asked-for-again",
        "who comes second is told so",
        "protocol.attach._loss_of",
        "if state.token != detached.token:",
        "if False:",
        f"{TWICE}[threads-sqlite]",
        dies_in="sqlite attached-twice:",
    ),
    Mutant(
        "attached-elsewhere-and-run-out",
        "a hold that has run out goes on nowhere, and nobody is told that it does",
        "protocol.inspect.attached",
        "if not state.held:",
        "if False:",
        f"{TESTS}::test_run_out_where_it_was_attached[threads-sqlite]",
        dies_in="model delivered-again:",
    ),
    Mutant(
        "an-attached-hold-is-believed-when-found",
        "what is found after a lost reply is renewed before it is believed",
        "protocol.attach._Attaching._confirm",
        "outcome = yield from confirm(self.exchange, asked)",
        "outcome: Term | DBLockError = asked.held.term",
        f"{TRACES}[postgresql]",
        dies_in="model handover: b.attach#1!alone:3 b.attach#1!cut:0.2",
    ),
    Mutant(
        "an-attached-hold-is-believed-too-late",
        "nobody believes in a hold whose term is over",
        "protocol.attach.attach",
        "if held.term.over(exchange.now):",
        "if False:",
        f"{TRACES}[sqlite]",
        dies_in="sqlite handover: b.attach#1!pause:9",
    ),
    Mutant(
        "an-attach-in-doubt-is-a-failure",
        "who cannot know what became of it is told so",
        "protocol.attach._Attaching.told",
        "if self.doubt is None:",
        "if True:",
        f"{FAULTS}::test_nobody_knows[postgresql-threads]",
        dies_in="sqlite attached-blindly: b.attach#1!unanswered",
    ),
    Mutant(
        "an-interrupted-attach-is-kept",
        "an interrupted attach leaves no lock behind",
        "AttachedLease._try_within",
        "database.runtime.undo(error, partial(self._undo, taking))",
        "pass",
        "tests/processes/test_interrupts.py::test_attach[postgresql]",
    ),
    Mutant(
        "the-end-of-with-is-told",
        "the end of `with` gives nothing back that was detached",
        "HeldLease._leave",
        "if self._detached and self._forget_detached():",
        "if False:",
        f"{TESTS}::test_the_end_of_with_is_quiet[threads-sqlite]",
    ),
    Mutant(
        "a-detached-hold-hides-the-next",
        "the end of `with` gives back what was taken since",
        "TakeableLease._keep",
        "if self._detached:",
        "if False:",
        f"{TESTS}::test_the_end_of_with_is_quiet[threads-sqlite]",
    ),
)
