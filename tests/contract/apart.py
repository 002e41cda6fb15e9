"""The cases that do not run in every world, or not on every kind of database, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from tests.conftest import KINDS

#: Those that make no sense for tasks.
THREADS_ONLY: Mapping[str, str] = {
    "test_regressions::test_functions_that_return_before_their_body_runs": "there a coroutine "
    "function is what is decorated, and a plain one refused",
    "test_keeper::test_a_coroutine_function_is_no_callback": "there it is one",
    "test_cron::test_a_coroutine_function_is_no_job": "there it is one",
    "test_keeper::test_a_callback_that_blocks_harms_nobody": "whatever blocks an event loop holds "
    "up all in it; a coroutine function is for a callback that waits",
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
        "test_keeper::test_it_outlives_its_ttl",
        "test_keeper::test_an_error_that_passes_is_survived",
        "test_keeper::test_it_is_told_unprompted",
    }
)


def kinds_in_asyncio(file: str, case: str) -> Sequence[str]:
    """Return the kinds of database that a case runs on in asyncio."""
    if file in EVERY_KIND or case in EVERY_KIND:
        return KINDS
    return (KINDS[crc32(case.encode()) % len(KINDS)],)
