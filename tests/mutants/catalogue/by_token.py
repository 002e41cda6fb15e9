"""Mutants that break what is promised of a lease by its token alone."""

from __future__ import annotations

from tests.mutants import reasons
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
        dies_in="sqlite by-token: a.grant#1+8",
    ),
    Mutant(
        "a-repeated-take-is-not-told-to-be-one",
        SAME,
        "by_token.TokenAttempt._found",
        "self.repeated = held is not None",
        "",
        f"{TESTS}::test_the_token_is_the_hold[threads-sqlite-report]",
        beyond="what a caller is told beside its hold; the contract's tests tell",
    ),
    Mutant(
        "two-calls-with-one-token-are-two-holders",
        SAME,
        "ByToken._take",
        "answer = self._take_now(attempt)\n"
        "        if isinstance(answer, Held):\n"
        "            return self._hold(attempt, answer, start)\n"
        "        raise refusal",
        "raise refusal",
        f"{TESTS}::test_two_calls_wait_with_one_token[threads-postgresql]",
    ),
    Mutant(
        "the-wait-is-not-counted",
        "a client counts from before its call, however long that waited",
        "ByToken._hold",
        "held.term.deadline - start",
        "held.term.deadline - held.term.start",
        f"{TESTS}::test_the_time_of_the_wait_is_counted[threads-sqlite]",
    ),
    Mutant(
        "what-was-waited-for-keeps-the-waiters-token",
        "what a take is told to have, its token has",
        "WaitingLease.hand_over",
        "move(exchange, detached, request)",
        "move(exchange, detached, __import__('dataclasses').replace(request, token=hold.token))",
        f"{TESTS}::test_waiting[threads-sqlite]",
    ),
    Mutant(
        "a-hold-of-another-token-is-no-loss",
        "a renewal or release by a token that has no hold says so",
        "inspect.loss_by_token",
        "if token in state.members:",
        "if state.held:",
        f"{NO_HOLD}[threads-sqlite]",
        beyond=reasons.WHICH_ERROR,
    ),
    Mutant(
        "a-token-takes-a-second-slot",
        SAME,
        "ByToken._take_now",
        "look_first=True",
        "look_first=False",
        "tests/contract/test_detached_kinds.py::test_a_slot[threads-sqlite]",
    ),
    Mutant(
        "a-reader-that-has-waited-keeps-its-own-share",
        "the last reader that is released frees the name",
        "WaitingSharedLease.hand_over",
        "self._release()",
        "pass",
        "tests/contract/test_detached_kinds.py::test_readers_wait_for_a_writer[threads-sqlite]",
    ),
    Mutant(
        "a-share-whose-release-had-no-reply-is-busy",
        "a release whose reply was lost has done it",
        "release.release",
        "if reader is not None and held is not None:",
        "if False:",
        "tests/faults/test_shared.py::test_a_lost_reply_to_leaving_is_settled[postgresql-threads-Lose.REPLY]",
        beyond=reasons.WHICH_ERROR,
    ),
    Mutant(
        "a-hold-of-another-epoch-is-in-use",
        "a hold of before a failover is lost",
        "by_token._why_lost",
        "return ended(exchange.name, state.fence, witness)",
        "return None",
        f"{FAULTS}::test_another_epoch",
        beyond=reasons.WHICH_ERROR,
    ),
)
