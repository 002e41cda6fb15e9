"""The cases that do not run in every world, or not on every kind of database, and why."""

from __future__ import annotations

from collections.abc import Mapping

#: Those that make no sense for tasks.
THREADS_ONLY: Mapping[str, str] = {
    "test_regressions::test_functions_that_return_before_their_body_runs": "there a coroutine "
    "function is what is decorated, and a plain one refused",
    "test_keeper::test_a_coroutine_function_is_no_callback": "there it is one",
    "test_keeper::test_a_callback_that_blocks_harms_nobody": "whatever blocks an event loop holds "
    "up all in it; a coroutine function is for a callback that waits",
}

#: Files, or cases, that run in asyncio on one kind alone: it is TTLs that they wait for, or other
#: workers, and what they test is above the drivers.
ONE_KIND: Mapping[str, str] = {
    "test_keeper": "postgresql",
    "test_expiry": "mariadb",
    "test_fence::test_in_the_order_of_the_grants": "postgresql",
    "test_guard::test_a_takeover_waits_for_the_guarded_transaction": "postgresql",
    "test_all::test_opposite_orders": "sqlite",
}
#: Cases of such files that run on all kinds.
EVERY_KIND = frozenset(
    {
        "test_keeper::test_it_outlives_its_ttl",
        "test_keeper::test_an_error_that_passes_is_survived",
        "test_keeper::test_it_is_told_unprompted",
        "test_expiry::test_acquired_after_the_row_was_locked",
        "test_expiry::test_what_the_database_says_has_expired_is_free",
        "test_expiry::test_the_time_zone_of_the_users_session_does_not_matter",
    }
)
