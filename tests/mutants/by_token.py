"""Mutants that break what is promised of a lease by its token alone."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS, FAULTS = "tests/contract/test_detached.py", "tests/faults/test_detached.py"
LATE = f"{FAULTS}::test_a_grant_that_is_told_too_late_is_not_released"
NO_HOLD = f"{TESTS}::test_what_is_no_hold"
SAME = "a call that is repeated with a token gets the same hold"

BY_TOKEN = (
    Mutant(
        "a-late-grant-is-released-by-its-token",
        "only the client's own release ends a hold by its token early",
        "by_token.TokenAttempt._give_back",
        "if why is None:",
        "if why is None and (yield from super()._give_back()):",
        f"{LATE}[postgresql-threads]",
    ),
    Mutant(
        "a-repeated-take-is-not-told-to-be-one",
        SAME,
        "by_token.TokenAttempt._found",
        "self.repeated = held is not None",
        "",
        f"{TESTS}::test_the_token_is_the_hold[threads-sqlite-report]",
    ),
    Mutant(
        "two-calls-with-one-token-are-two-holders",
        SAME,
        "DetachedLease._take",
        "if isinstance(answer, Held):\n                return",
        "if False:\n                return",
        f"{TESTS}::test_two_calls_wait_with_one_token[threads-postgresql]",
    ),
    Mutant(
        "the-wait-is-not-counted",
        "a client counts from before its call, however long that waited",
        "DetachedLease._hold",
        "held.term.deadline - start",
        "held.term.deadline - held.term.start",
        f"{TESTS}::test_the_time_of_the_wait_is_counted[threads-sqlite]",
    ),
    Mutant(
        "what-was-waited-for-keeps-the-waiters-token",
        "what a take is told to have, its token has",
        "_WaitingLease.hand_over",
        "held, now = database.run(\n"
        "                exchange(database.dialect, detached, request, patience, now)\n"
        "            )",
        "held = hold.lease",
        f"{TESTS}::test_waiting[threads-sqlite]",
    ),
    Mutant(
        "a-hold-of-another-token-is-no-loss",
        "a renewal or release by a token that has no hold says so",
        "inspect.loss_by_token",
        "if token in state.members:",
        "if state.held:",
        f"{NO_HOLD}[threads-sqlite]",
    ),
    Mutant(
        "a-hold-of-another-epoch-is-in-use",
        "a hold of before a failover is lost",
        "by_token._why_lost",
        "return ended(name, state.fence, witness)",
        "return None",
        f"{FAULTS}::test_another_epoch",
    ),
)
