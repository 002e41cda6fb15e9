"""Mutants of what is done after a crash or a failover (promise 15)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CALLING = "dblock/dialects/calling.py"
PG, WITNESS = "dblock/dialects/postgresql.py", "dblock/dialects/witness.py"
EPOCH = "dblock/protocol/epoch.py"

CRASH = (
    "tests/faults/test_crash.py::"
    "test_after_a_crash_of_volatile_tables_nothing_is_granted_for_the_longest_ttl[threads-backend]"
)
FAILOVER = (
    "tests/faults/test_promotion.py::test_what_the_standby_never_heard_of_is_not_granted_twice"
)
TESTS = "tests/faults/test_witness.py"

# A select that has no witness to look for, and lets everything pass.
NO_WITNESS = 'return f"SELECT epoch FROM {self.epoch_table}"'

CRASHES = (
    Mutant(
        "no-witness-after-a-crash",
        "what a crash forgot is not granted again",
        WITNESS,
        'return f"SELECT epoch FROM {self.witness_table} WHERE {where}"',
        NO_WITNESS,
        CRASH,
    ),
    Mutant(
        "no-witness-after-a-failover",
        "what a standby never heard of is not granted again",
        WITNESS,
        'return f"SELECT epoch FROM {self.witness_table} WHERE {where}"',
        NO_WITNESS,
        f"{FAILOVER}[durable]",
    ),
    Mutant(
        "grants-at-once",
        "nothing is granted until the longest TTL is over",
        WITNESS,
        'OPEN = "grants_from <= clock_timestamp()"',
        'OPEN = "grants_from IS NOT NULL"',
        CRASH,
    ),
    Mutant(
        "queue-before-the-pause-is-over",
        "nor to who waited in the queue",
        CALLING,
        "FROM {self.open}, {self.lock_table} AS k WHERE lock_name = %(name)s AND {PATIENT}",
        "FROM {self.epoch_table} AS open, {self.lock_table} AS k\n"
        "                WHERE lock_name = %(name)s AND {PATIENT}",
        f"{TESTS}::test_who_stands_in_the_queue_waits_too[threads]",
    ),
    Mutant(
        "refused-without-a-reason",
        "whoever is refused by a witness that is missing has it written anew",
        "dblock/protocol/acquiring.py",
        "if held is None and self.unexplained and (yield from self._mend()):",
        "if False:",
        f"{TESTS}::test_nothing_granted_means_no_pause",
    ),
    Mutant(
        "row-locks-at-once",
        "nor is a row locked",
        PG,
        "WITH open AS MATERIALIZED ({self.epoch(OPEN)}), locked",
        "WITH open AS MATERIALIZED ({self.epoch()}), locked",
        CRASH,
    ),
    Mutant(
        "fence-without-the-epoch",
        "fences grow, even of names whose row was lost",
        WITNESS,
        'FIRST_FENCE = "open.epoch + 1"',
        'FIRST_FENCE = "1::bigint"',
        f"{TESTS}::test_fences_grow_across_a_crash",
    ),
    Mutant(
        "fence-below-the-epoch",
        "fences grow, even of names whose row is older than what was told",
        WITNESS,
        'NEXT_FENCE = "greatest(l.fence, mine.epoch) + 1"',
        'NEXT_FENCE = "l.fence + 1"',
        f"{FAILOVER}[durable]",
    ),
    Mutant(
        "epoch-is-a-count",
        "fences grow past those of an epoch that the standby never heard of",
        WITNESS,
        'f"greatest(e.epoch + {2**32}, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)"',
        'f"e.epoch + {2**32}"',
        f"{FAILOVER}[volatile]",
    ),
    Mutant(
        "longest-ttl-not-recorded",
        "the pause is as long as the longest TTL ever granted",
        WITNESS,
        "SET longest_ttl = greatest(e.longest_ttl, %(ttl)s), writer = {WRITER}\n"
        "                WHERE EXISTS ({self.epoch()}) RETURNING longest_ttl,",
        "SET writer = {WRITER}\n"
        "                WHERE EXISTS ({self.epoch()}) RETURNING %(ttl)s::float8 AS longest_ttl,",
        f"{TESTS}::test_the_longest_ttl_is_known_before_it_is_granted",
    ),
    Mutant(
        "longest-ttl-not-asked-for",
        "no TTL is granted that is not known to outlive a crash",
        WITNESS,
        'KNOWN = "longest_ttl >= %(ttl)s"',
        'KNOWN = "true"',
        f"{TESTS}::test_the_longest_ttl_is_known_before_it_is_granted",
    ),
    Mutant(
        "longest-ttl-not-asked-for-by-renewals",
        "no TTL is renewed to that is not known to outlive a crash",
        PG,
        "self.epoch(KNOWN)",
        "self.epoch()",
        f"{TESTS}::test_the_longest_ttl_is_known_before_it_is_granted",
    ),
    Mutant(
        "pause-without-a-loss",
        "leases in durable tables outlive a crash, without a pause",
        WITNESS,
        "here.lock = 'p' OR e.longest_ttl IS NULL AS intact",
        "e.longest_ttl IS NULL AS intact",
        "tests/faults/test_crash.py::test_durable_leases_outlive_a_crash[backend]",
    ),
    Mutant(
        "failover-taken-for-a-crash",
        "another timeline is another history, durable tables or not",
        WITNESS,
        "e.server IS NOT DISTINCT FROM here.server AND {_BELIEVED} AS same",
        "true AS same",
        f"{FAILOVER}[durable]",
    ),
    Mutant(
        "a-dump-is-believed",
        "rows that were put back vouch for nothing",
        WITNESS,
        '_BELIEVED = "writer = xmin::text"',
        '_BELIEVED = "writer IS NOT NULL"',
        f"{TESTS}::test_tables_put_back_from_a_dump_are_not_believed",
    ),
    Mutant(
        "found-out-twice",
        "one crash is one pause, however many find it out",
        WITNESS,
        "FROM seen WHERE e.xmin::text = seen.version",
        "FROM seen WHERE true",
        f"{TESTS}::test_two_find_out_at_once",
    ),
    Mutant(
        "a-change-hides-a-crash",
        "a crash is found out, although the tables were made durable since",
        WITNESS,
        "SET server = NULL WHERE",
        "SET server = server WHERE false AND",
        f"{TESTS}::test_a_crash_does_not_go_unnoticed_by_a_change",
    ),
    Mutant(
        "old-holders-are-not-told",
        "a holder from before a crash is told why it lost the lease",
        EPOCH,
        "if fence > witness.epoch:",
        "if True:",
        f"{TESTS}::test_old_holders_are_told[threads-renew]",
    ),
)
