"""Mutants of releases: only the holder releases, and a repeated release is no loss (promise 4)."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

PLANTED = "tests/faults/test_planted.py"
SETTLING = "tests/faults/test_settling.py"
WRITING = "tests/faults/test_writing.py"
DOUBT = "test_a_release_after_one_that_is_in_doubt"
TAKEN_OVER = f"{PLANTED}::test_a_holder_that_was_taken_over"

RELEASES = (
    Mutant(
        "release-without-token-postgresql",
        "only the holder releases",
        "postgresql.lease.LeaseStatements.release",
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
        "sqlite.lease.LeaseStatements.release",
        "WHERE lock_name = :name AND token = :token",
        "WHERE lock_name = :name",
        f"{TAKEN_OVER}[sqlite-release]",
        dies_in="sqlite forced:",
    ),
    Mutant(
        "release-counts-no-rows",
        "a release that freed nothing says so",
        "release.release",
        "if reply.answer == 1:",
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
        "HeldLease._end",
        "hold.in_doubt = hold.in_doubt or not (told or after)",
        "pass",
        f"{WRITING}::{DOUBT}[postgresql-threads-can be ended]",
    ),
)
