"""Mutants of the service's events, metrics and page."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

EVENTS = "tests/contrib/serve/test_events.py"
METRICS, PAGE = "tests/contrib/serve/test_metrics.py", "tests/contrib/serve/test_page.py"
READ = "a caller learns only of names that it may read"
SLOW = "a client that does not read costs no memory, and harms no other"
#: What a bug would do: read the token of a name from the database, and take it for a label.
LEAKED = (
    "__import__('dataclasses').replace(state, owner=__import__('sqlite3').connect("
    "self._locks.sync.engine.url.database).execute("
    "'SELECT token FROM dblock_lock WHERE lock_name = ?', (state.name,)).fetchone()[0])"
)

SERVICE_EVENTS = (
    Mutant(
        "served-events-of-another-tenants-names",
        READ,
        "Wanted.covers",
        'asked and caller.may("read", name)',
        "asked",
        f"{EVENTS}::test_a_prefix_is_limited_to_the_names_that_a_caller_may_read",
    ),
    Mutant(
        "served-events-of-a-name-for-everybody",
        READ,
        "events.caller_of",
        'rights.check(request, "read", name)',
        "rights.caller(request)",
        f"{EVENTS}::test_rights",
    ),
    Mutant(
        "served-events-for-a-withdrawn-token",
        READ,
        "EventStream._stream",
        "caller = rights.caller(self._request)\ntexts",
        "texts",
        f"{EVENTS}::test_a_stream_ends_when_its_token_is_withdrawn",
    ),
    Mutant(
        "served-metrics-for-everybody",
        READ,
        "metrics.routes",
        'service.rights.check(request, "read", "")',
        "service.rights.caller(request)",
        f"{METRICS}::test_metrics_need_the_right_to_read_all_names",
    ),
    Mutant(
        "served-a-token-in-an-event",
        "no event has a token",
        "Feed._read",
        "state.name: state for state",
        f"state.name: {LEAKED} for state",
        f"{EVENTS}::test_never_a_token",
    ),
    Mutant(
        "served-events-are-kept-for-ever",
        SLOW,
        "Backlog.add",
        "while self.size > self._kept:",
        "while False:",
        f"{EVENTS}::test_events_that_nobody_reads_are_let_go",
    ),
    Mutant(
        "served-a-client-that-does-not-read-stays",
        SLOW,
        "EventStream._send",
        "asyncio.timeout(self._feed.pace.patience)",
        "asyncio.timeout(None)",
        f"{EVENTS}::test_a_client_that_does_not_read_is_dropped_and_others_are_served",
    ),
    Mutant(
        "served-a-client-that-is-behind-misses-events",
        "a client misses no event without learning of it",
        "Backlog.after",
        "raise Behind",
        "count = len(self._events)",
        f"{EVENTS}::test_a_client_that_is_too_slow_begins_again",
    ),
    Mutant(
        "served-a-poller-for-each-client",
        "one poller for all clients",
        "Feed.listening",
        "if self._task is None:",
        "if True:",
        f"{EVENTS}::test_one_poller_for_all_clients_which_leave",
    ),
    Mutant(
        "served-a-poller-for-nobody",
        "when the last client leaves, nothing goes on",
        "Feed.listening",
        "if not self._listeners:",
        "if False:",
        f"{EVENTS}::test_one_poller_for_all_clients_which_leave",
    ),
    Mutant(
        "served-streams-outlive-the-service",
        "streams end when the service stops",
        "EventStream._serve",
        "self._service.closing",
        "asyncio.Event()",
        f"{EVENTS}::test_streams_end_when_the_service_stops",
    ),
    Mutant(
        "served-any-script-on-the-page",
        "the page runs its own script alone",
        "page.policy",
        "f\"script-src {hashes('script')}\"",
        "\"script-src 'unsafe-inline'\"",
        f"{PAGE}::test_its_policy",
    ),
)
