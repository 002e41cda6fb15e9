"""The cases that do not run in every world, or not on every kind of database, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.conftest import BORROWED, HOSTILE, KINDS, NODE, kind_for

#: Those that make no sense for tasks.
THREADS_ONLY: Mapping[str, str] = {
    "test_regressions::test_functions_that_return_before_their_body_runs": "there a coroutine "
    "function is what is decorated, and a plain one refused",
    "test_keeper_tells::test_a_coroutine_function_is_no_callback": "there it is one",
    "test_cron::test_a_coroutine_function_is_no_job": "there it is one",
    "test_detached::test_it_stays_in_its_process": "there what a test has is made for it alone",
    "test_whereabouts::test_a_session_with_binds": "there a session's sync one does that",
    "test_keeper_tells::test_a_callback_that_blocks_harms_nobody": "whatever blocks an event loop "
    "holds up all in it; a coroutine function is for a callback that waits",
}

#: Files and cases that run in asyncio on every kind of database, as all do in threads: there the
#: drivers are what differs. The others run on one each, in turn, to save time: what they test is
#: above the drivers.
EVERY_KIND = frozenset(
    {
        "test_lease",
        "test_loss",
        "test_row",
        "test_borrowed",
        "test_fencing",
        "test_once",
        "test_savepoint",
        "test_whereabouts",
        "test_election",
        "test_rate",
        "test_semaphore",
        "test_semaphore_limit",
        "test_shared",
        "test_shared_expiry",
        "test_shared_waiting",
        "test_keeper::test_it_outlives_its_ttl",
        "test_keeper_tells::test_it_is_told_unprompted",
    }
)


#: Cases that run on one kind of database in each world, and not on the same: they are about the
#: keeper itself, of which a database sees nothing but the renewal, and the others test that.
ONE_KIND = frozenset(
    f"{file}::{case}"
    for file, cases in {
        "test_keeper": (
            "test_an_error_that_passes_is_survived",
            "test_a_defect_is_logged_and_survived",
            "test_a_release_waits_for_the_renewal_under_way",
            "test_a_release_does_not_wait_for_ever_and_is_not_undone",
            "test_a_release_that_failed_is_not_renewed",
            "test_a_lease_whose_handle_is_dropped_runs_out",
            "test_closed_locks_renew_nothing",
            "test_at_most_so_many_renewals",
            "test_never_held_longer",
            "test_held_shorter_than_its_ttl",
            "test_leases_that_come_and_go_do_not_wake_the_timer",
            "test_the_threads_end_when_nothing_is_held",
        ),
        "test_keeper_tells": (
            "test_danger_then_loss_then_another_holder",
            "test_unreachable",
            "test_the_loss_is_told_in_time_while_a_renewal_hangs",
            "test_an_answer_that_comes_late_revives_nothing",
            "test_what_the_holder_can_see_needs_no_keeper",
            "test_a_callback_that_fails_harms_nobody",
            "test_a_callback_that_blocks_harms_nobody",
            "test_lost_is_set_for_all_before_anybody_is_called",
        ),
    }.items()
    for case in cases
)


#: Files whose cases also run on databases with hostile settings: between them they send each of
#: dblock's statements. In asyncio those are what a driver itself makes of such settings.
HOSTILE_FILES = {
    "threads": frozenset(
        {
            "test_lease",
            "test_row",
            "test_guard",
            "test_fence",
            "test_cron",
            "test_cron_record",
            "test_names",
            "test_borrowed",
            "test_counter",
            "test_counter_races",
            "test_fencing",
            "test_once",
            "test_rate",
            "test_semaphore",
            "test_semaphore_limit",
            "test_waiters",
        }
    ),
    "asyncio": frozenset({"test_guard", "test_names"}),
}


#: Files whose cases also run on a node of a Galera cluster: between them they send each of the
#: statements that are others there.
NODE_FILES = {
    "threads": frozenset(
        {
            "test_exclusion",
            "test_fence",
            "test_guard",
            "test_handover",
            "test_rate",
            "test_row",
            "test_semaphore",
            "test_semaphore_limit",
        }
    ),
    "asyncio": frozenset({"test_guard"}),
}


#: Files whose cases also run with each other driver that a user's transaction may have: they are
#: about such transactions.
BORROWING = frozenset(
    {
        "test_borrowed",
        "test_guard",
        "test_isolation",
        "test_counter",
        "test_counter_columns",
        "test_counter_exact",
        "test_counter_races",
        "test_counter_stripes",
        "test_fencing",
        "test_once",
        "test_savepoint",
        "test_whereabouts",
    }
)


def kinds(world: str, file: str, case: str) -> Sequence[str]:
    """Return the kinds of database that a case runs on in a world."""
    if case in ONE_KIND:
        return (kind_for(case, 1 if world == "threads" else 0),)
    hostile = HOSTILE if file in HOSTILE_FILES.get(world, ()) else ()
    node = (NODE,) if file in NODE_FILES.get(world, ()) else ()
    more = (*hostile, *node, *(BORROWED[world] if file in BORROWING else ()))
    if world == "threads" or file in EVERY_KIND or case in EVERY_KIND:
        return (*KINDS, *more)
    return (kind_for(case), *more)
