"""Mutants that break what is promised of elections."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS, SLOTS = "tests/contract/test_election.py", "tests/contract/test_semaphore.py"

ELECTIONS = (
    Mutant(
        "a-value-without-its-token",
        "a leader that was deposed proclaims nothing",
        "elections.ElectionStatements.proven",
        """AND token = {self.parameter("token")}""",
        """AND token IS NOT NULL""",
        f"{TESTS}::test_a_deposed_leader_proclaims_nothing[threads-sqlite]",
    ),
    Mutant(
        "a-value-after-its-term",
        "a leader whose term is over by the database's clock proclaims nothing",
        "elections.ElectionStatements.proven",
        "AND {self.remaining} > 0",
        "",
        f"{TESTS}::test_nothing_is_proclaimed_by_who_has_expired[threads-sqlite]",
    ),
    Mutant(
        "a-late-value",
        "a value of a later term is not replaced by one of an earlier",
        "dialects.elections.ElectionStatements.write_value",
        "WHERE v.fence BETWEEN 1 AND excluded.fence",
        "WHERE v.fence > 0",
        f"{TESTS}::test_a_value_of_a_later_hold_stays[threads-sqlite]",
    ),
    Mutant(
        "a-late-value-on-mariadb",
        "a value of a later term is not replaced by one of an earlier",
        "mariadb.election.ElectionStatements.write_value",
        "{self.value_table}.fence BETWEEN 1 AND VALUES(fence)",
        "{self.value_table}.fence > 0",
        f"{TESTS}::test_a_value_of_a_later_hold_stays[threads-mariadb]",
    ),
    Mutant(
        "a-value-replaces-a-limit",
        "no leader's value replaces the limit of a semaphore",
        "dialects.elections.ElectionStatements.write_value",
        "BETWEEN 1 AND excluded.fence",
        "<= excluded.fence",
        f"{SLOTS}::test_no_election_under_the_name_of_a_semaphore[threads-sqlite]",
    ),
    Mutant(
        "a-value-replaces-a-limit-on-mariadb",
        "no leader's value replaces the limit of a semaphore",
        "mariadb.election.ElectionStatements.write_value",
        "BETWEEN 1 AND VALUES(fence)",
        "<= VALUES(fence)",
        f"{SLOTS}::test_no_election_under_the_name_of_a_semaphore[threads-mariadb]",
    ),
    Mutant(
        "a-reader-leads",
        "a leader is who holds the name alone",
        "elections.ElectionStatements.leader",
        """AND NOT {shared("l.token")}""",
        "",
        f"{TESTS}::test_a_reader_is_no_leader[threads-sqlite]",
    ),
    Mutant(
        "a-value-of-an-earlier-term",
        "a value ends with the term in which it was proclaimed",
        "elections.ElectionStatements.leader",
        "AND v.fence = l.fence",
        "",
        f"{TESTS}::test_a_value_ends_with_its_term[threads-sqlite]",
    ),
    Mutant(
        "an-expired-leader-is-told",
        "nobody is told of a leader whose term is over",
        "elections.ElectionStatements.leader",
        "AND {self.remaining} > 0 AND NOT",
        "AND NOT",
        f"{TESTS}::test_a_value_ends_with_its_term[threads-sqlite]",
    ),
    Mutant(
        "an-expiry-is-overslept",
        "who observes looks when the term it knows should be over",
        "protocol.election.observe",
        "rest = min(rest, max(SOON, found.remaining))",
        "pass",
        f"{TESTS}::test_an_observer_sees_an_expiry[threads-sqlite]",
    ),
    Mutant(
        "observers-are-not-called",
        "on PostgreSQL who observes is called when something is proclaimed",
        "postgresql.election",
        'written = f", {_CALL}, {DURABLE}"',
        'written = f", {DURABLE}"',
        f"{TESTS}::test_observers_are_called[threads-postgresql-times0]",
    ),
    Mutant(
        "a-resignation-is-not-called-out",
        "on PostgreSQL who observes is called when a leader resigns",
        "dblock.election.Leadership._end",
        "database.run(election.call(",
        "str(election.call(",
        f"{TESTS}::test_observers_are_called[threads-postgresql-times0]",
    ),
    Mutant(
        "run-ends-with-its-term",
        "an election that runs campaigns again when its term was lost",
        "dblock.election.Election.run",
        "if not term.lost.is_set():",
        "if True:",
        f"{TESTS}::test_run_campaigns_again_when_the_term_was_lost[threads-sqlite-raises]",
    ),
    Mutant(
        "a-value-goes-before-its-name",
        "only values of names that have gone are pruned",
        "runs.RunStatements.prune_values",
        "AND fence > 0 AND NOT {named}",
        "AND fence > 0",
        "tests/contract/test_retiring.py::test_old_values_of_no_name_go[threads-sqlite]",
    ),
)
