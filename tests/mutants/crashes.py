"""Mutants of what is done after a crash or a failover (promise 15)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CRASH = (
    "tests/faults/test_crash.py::"
    "test_after_a_crash_of_volatile_tables_nothing_is_granted_for_the_longest_ttl[threads-backend]"
)
FAILOVER = (
    "tests/faults/test_promotion.py::test_what_the_standby_never_heard_of_is_not_granted_twice"
)
TESTS, TTLS = "tests/faults/test_witness.py", "tests/faults/test_longest_ttl.py"
PAUSE, CLOCK = "tests/faults/test_pause.py", "tests/faults/test_clock.py"
SYNCHRONOUS = "tests/faults/test_synchronous.py"

# A select that has no witness to look for, and lets everything pass.
NO_WITNESS = 'return f"SELECT epoch FROM {self.epoch_table}"'

CRASHES = (
    Mutant(
        "no-witness-after-a-crash",
        "what a crash forgot is not granted again",
        "Witnessing.epoch",
        'return f"SELECT epoch FROM {self.witness_table} WHERE {where}"',
        NO_WITNESS,
        CRASH,
    ),
    Mutant(
        "no-witness-after-a-failover",
        "what a standby never heard of is not granted again",
        "Witnessing.epoch",
        'return f"SELECT epoch FROM {self.witness_table} WHERE {where}"',
        NO_WITNESS,
        f"{FAILOVER}[durable]",
    ),
    Mutant(
        "grants-at-once",
        "nothing is granted until the longest TTL is over",
        "witness.OPEN",
        'OPEN = "grants_from <= clock_timestamp()"',
        'OPEN = "grants_from IS NOT NULL"',
        CRASH,
    ),
    Mutant(
        "queue-before-the-pause-is-over",
        "nor to who waited in the queue",
        "Calling._grant_or_join",
        "FROM {self.open}, {self.lock_table} AS k WHERE lock_name = %(name)s AND {PATIENT}",
        (
            "FROM {self.epoch_table} AS open, {self.lock_table} AS k\n"
            "WHERE lock_name = %(name)s AND {PATIENT}"
        ),
        f"{TESTS}::test_who_stands_in_the_queue_waits_too[threads]",
    ),
    Mutant(
        "refused-without-a-reason",
        "whoever is refused by a witness that is missing has it written anew",
        "_Tries.once",
        "if held is None and self.unexplained and (yield from self._mend()):",
        "if False:",
        f"{TESTS}::test_nothing_granted_means_no_pause",
    ),
    Mutant(
        "row-locks-at-once",
        "nor is a row locked",
        "PostgreSQL.lock_row",
        "WITH open AS MATERIALIZED ({self.epoch(OPEN)}), locked",
        "WITH open AS MATERIALIZED ({self.epoch()}), locked",
        CRASH,
    ),
    Mutant(
        "fence-without-the-epoch",
        "fences grow, even of names whose row was lost",
        "witness.FIRST_FENCE",
        'FIRST_FENCE = "open.epoch + 1"',
        'FIRST_FENCE = "1::bigint"',
        f"{TESTS}::test_fences_grow_across_a_crash",
    ),
    Mutant(
        "fence-below-the-epoch",
        "fences grow, even of names whose row is older than what was told",
        "witness.NEXT_FENCE",
        'NEXT_FENCE = "greatest(l.fence, mine.epoch) + 1"',
        'NEXT_FENCE = "l.fence + 1"',
        f"{FAILOVER}[durable]",
    ),
    Mutant(
        "epoch-is-a-count",
        "fences grow past those of an epoch that the standby never heard of",
        "witness._NEXT_EPOCH",
        'f"greatest(e.epoch + {2**32}, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)"',
        'f"e.epoch + {2**32}"',
        f"{FAILOVER}[volatile]",
    ),
    Mutant(
        "longest-ttl-not-recorded",
        "the pause is as long as the longest TTL ever granted",
        "Witnessing.announce_ttl",
        "SET longest_ttl = greatest(e.longest_ttl, %(ttl)s), writer",
        "SET writer",
        f"{TTLS}::test_the_longest_ttl_is_known_before_it_is_granted",
    ),
    Mutant(
        "longest-ttl-not-announced",
        "a TTL is granted once the standbys know of it that commits wait for",
        "Witnessing.record_ttl",
        "AND e.longest_ttl >= %(ttl)s",
        "AND %(ttl)s >= 0",
        f"{SYNCHRONOUS}::test_a_ttl_that_is_not_announced_is_not_recorded",
    ),
    Mutant(
        "found-is-held",
        "a token that is found proves a local commit alone",
        "_Tries._try",
        "return (yield from self._confirm(held))",
        "return held",
        f"{SYNCHRONOUS}::test_a_grant_that_the_standby_has_not_got_is_unknown[threads]",
    ),
    Mutant(
        "found-is-held-however-late",
        "who is told that it has a lease has it then",
        "_Tries._confirm",
        "self.now = (yield Sleep(0)).now",
        "yield Sleep(0)",
        "tests/protocol/test_acquiring.py::"
        "test_what_is_found_is_given_back_when_its_renewal_is_told_too_late",
    ),
    Mutant(
        "success-with-a-warning",
        "a wait for a standby that an operator cancels is no success",
        "Connections.execute",
        "if session.doubts:",
        "if False:",
        f"{SYNCHRONOUS}::test_what_the_standby_has_not_got_is_written_again[cancelled-renew]",
    ),
    Mutant(
        "warnings-are-not-for-clients",
        "nor is it where the server keeps its warnings to itself",
        "witness.DURABLE",
        "current_setting('client_min_messages') = 'error'",
        "current_setting('client_min_messages') = 'never'",
        f"{SYNCHRONOUS}::test_what_the_standby_has_not_got_is_written_again[cancelled-end_a_run]",
    ),
    Mutant(
        "back-to-an-old-primary",
        "a server that another has replaced is not gone back to",
        "Connections._connect",
        "if self._behind(connection):",
        "if False:",
        "tests/faults/test_promotion.py::test_an_old_primary_beside_the_new_one_is_left[threads]",
    ),
    Mutant(
        "connections-to-an-old-primary",
        "nor is a connection used that leads there since before",
        "Connections._take_idle",
        "and not self._behind(connection)",
        "",
        "tests/faults/test_promotion.py::test_an_old_primary_beside_the_new_one_is_left[threads]",
    ),
    Mutant(
        "longest-ttl-not-asked-for",
        "no TTL is granted that is not known to outlive a crash",
        "witness.KNOWN",
        'KNOWN = "longest_ttl >= %(ttl)s AND',
        'KNOWN = "',
        f"{TTLS}::test_the_longest_ttl_is_known_before_it_is_granted",
    ),
    Mutant(
        "longest-ttl-not-asked-for-by-renewals",
        "no TTL is renewed to that is not known to outlive a crash",
        "PostgreSQL.renew",
        "self.epoch(KNOWN)",
        "self.epoch()",
        f"{TTLS}::test_the_longest_ttl_is_known_before_it_is_granted",
    ),
    Mutant(
        "pause-without-a-loss",
        "leases in durable tables outlive a crash, without a pause",
        "Witnessing.write_witness",
        "here.lock = 'p' OR e.longest_ttl IS NULL",
        "e.longest_ttl IS NULL",
        "tests/faults/test_crash.py::test_durable_leases_outlive_a_crash[backend]",
    ),
    Mutant(
        "a-crash-ends-the-pause",
        "a crash in a pause does not end it",
        "Witnessing.write_witness",
        "greatest(e.grants_from, clock_timestamp())) ELSE",
        "clock_timestamp()) ELSE",
        f"{PAUSE}::test_a_crash_in_a_pause_does_not_end_it[durable-backend]",
    ),
    Mutant(
        "a-pause-as-long-as-the-clock-said",
        "a clock that is put right costs one longest TTL, not as long as it was wrong",
        "Witnessing.witness",
        "WHERE {_BELIEVED} AND {self._sane}",
        "WHERE {_BELIEVED}",
        f"{CLOCK}::test_a_clock_that_is_put_back_begins_no_long_pause[threads]",
    ),
    Mutant(
        "a-pause-cut-short-is-a-crash",
        "nothing is lost where only the clock was wrong",
        "Witnessing.write_witness",
        "OR EXISTS ({self.epoch()}) AS intact",
        "AS intact",
        f"{CLOCK}::test_a_pause_of_a_clock_that_was_ahead_is_cut_short[volatile-threads]",
    ),
    Mutant(
        "the-longest-ttl-is-announced-in-a-while",
        "no longer TTL is granted before that is on disk",
        "Witnessing.announce_ttl",
        "RETURNING {DURABLE}",
        "",
        "tests/faults/test_crash.py::test_a_longer_ttl_is_on_disk_once_it_is_announced",
    ),
    Mutant(
        "a-ttl-is-known-for-ever",
        "a TTL that nobody asks for any more is forgotten",
        "witness.KNOWN",
        "AND valid_until > clock_timestamp()",
        "",
        f"{TTLS}::test_a_ttl_that_nobody_asks_for_any_more_is_forgotten[threads]",
    ),
    Mutant(
        "what-is-on-its-way-is-forgotten",
        "what was granted of late may be out, seen in the table or not",
        "Witnessing.record_ttl",
        "THEN greatest(%(ttl)s, granted, {before})",
        "THEN greatest(%(ttl)s, {before})",
        f"{TTLS}::test_a_ttl_that_nobody_asks_for_any_more_is_forgotten[threads]",
    ),
    Mutant(
        "what-is-out-is-forgotten",
        "a lease that is out is waited for, however long ago it was granted",
        "Witnessing.record_ttl",
        "THEN greatest(%(ttl)s, granted, {before})",
        "THEN greatest(%(ttl)s, granted)",
        f"{TTLS}::test_a_lease_that_is_out_is_not_forgotten[threads]",
    ),
    Mutant(
        "begun-anew-twice",
        "one begins anew, and none takes back what another recorded",
        "Witnessing.record_ttl",
        "AND w.writer = w.xmin::text FOR UPDATE",
        "AND w.writer = w.xmin::text",
        f"{TTLS}::test_two_begin_anew_at_once",
    ),
    Mutant(
        "a-day-passes-in-a-pause",
        "a pause loses sight of no lease that the table forgot",
        "Witnessing.write_witness",
        "grants_from, grants_from + {_VALID}",
        "grants_from, clock_timestamp() + {_VALID}",
        f"{TTLS}::test_a_pause_loses_sight_of_no_lease",
    ),
    Mutant(
        "failover-taken-for-a-crash",
        "another timeline is another history, durable tables or not",
        "Witnessing.write_witness",
        "e.server IS NOT DISTINCT FROM here.server AND {_BELIEVED} AS same",
        "true AS same",
        f"{FAILOVER}[durable]",
    ),
    Mutant(
        "a-dump-is-believed",
        "rows that were put back vouch for nothing",
        "witness._BELIEVED",
        '_BELIEVED = "writer = xmin::text"',
        '_BELIEVED = "writer IS NOT NULL"',
        f"{TESTS}::test_tables_put_back_from_a_dump_are_not_believed",
    ),
    Mutant(
        "found-out-twice",
        "one crash is one pause, however many find it out",
        "Witnessing.write_witness",
        "FROM seen WHERE e.xmin::text = seen.version",
        "FROM seen WHERE true",
        f"{TESTS}::test_two_find_out_at_once",
    ),
    Mutant(
        "a-change-hides-a-crash",
        "a crash is found out, although the tables were made durable since",
        "Witnessing.set_durability",
        "SET server = NULL WHERE",
        "SET server = server WHERE false AND",
        f"{TESTS}::test_a_crash_does_not_go_unnoticed_by_a_change",
    ),
    Mutant(
        "old-holders-are-not-told",
        "a holder from before a crash is told why it lost the lease",
        "epoch.ended",
        "if fence > witness.epoch:",
        "if True:",
        f"{TESTS}::test_old_holders_are_told[threads-renew]",
    ),
)
