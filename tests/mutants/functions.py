"""Mutants that break what is promised of the SQL functions for other languages."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

HOLDING = "tests/sql_functions/test_holding.py"
FAULTS = "tests/sql_functions/test_faults.py"
MAKING = "tests/sql_functions/test_making.py"
ACQUIRE = "FunctionStatements._acquire_by_function"

FUNCTIONS = (
    Mutant(
        "functions-record-in-a-savepoint",
        "what a function records is believed, or it fails",
        "FunctionStatements._trust",
        "AND writer <> xmin::text",
        "AND false",
        f"{HOLDING}::test_in_a_savepoint_nothing_is_recorded",
    ),
    Mutant(
        "functions-do-not-wait-for-an-earlier-try",
        "a repeat with the token of a try that is under way gets its hold",
        "functions._ONE_BY_ONE",
        "PERFORM pg_advisory_xact_lock(hashtextextended($2, 0));",
        "PERFORM 1;",
        f"{HOLDING}::test_a_repeat_waits_for_the_try_that_is_under_way[True]",
    ),
    Mutant(
        "functions-with-the-rights-of-the-caller",
        "a role without rights on the tables can use the functions",
        "sql_function.AS_OWNER",
        "SECURITY DEFINER",
        "SECURITY INVOKER",
        f"{MAKING}::test_a_role_without_rights_on_the_tables",
    ),
    Mutant(
        "functions-on-the-search-path-of-the-caller",
        "no function of the caller's is run with the rights of the tables' owner",
        "SqlFunction.create",
        "SET search_path = pg_catalog, pg_temp",
        "",
        f"{MAKING}::test_what_the_caller_puts_first_on_its_search_path_is_not_called",
    ),
    Mutant(
        "functions-for-every-role",
        "no role may call the functions unless that is granted",
        "SqlFunction.create",
        "IF new THEN",
        "IF false THEN",
        f"{MAKING}::test_a_role_without_rights_on_the_tables",
    ),
    Mutant(
        "functions-do-not-consult-the-witness",
        "a database that only functions use records its longest TTL",
        ACQUIRE,
        'SELECT t.pause INTO pause FROM {self._named("trust")}($4) AS t;',
        "pause := 0;",
        f"{HOLDING}::test_a_longer_ttl_is_recorded_before_it_is_granted",
    ),
    Mutant(
        "functions-make-their-transaction-lazy",
        "no setting outlasts a function but what makes a grant durable",
        "functions._with",
        '.replace(LAZY, "NULL")',
        "",
        f"{HOLDING}::test_the_transaction_of_a_caller_keeps_its_settings",
    ),
    Mutant(
        "functions-do-not-know-a-repeat",
        "a repeat with the token of a hold is that hold",
        ACQUIRE,
        "IF state.token = $2 AND",
        "IF false AND",
        f"{HOLDING}::test_a_repeat_with_the_token_is_the_same_hold",
    ),
    Mutant(
        "functions-overtake-the-queue",
        "a caller of the functions does not overtake those who wait",
        ACQUIRE,
        "_with(self._grant, **asked)",
        '_with(self._taken("expires_at <= clock_timestamp()"), **asked)',
        f"{HOLDING}::test_a_caller_does_not_overtake_the_waiters",
    ),
    Mutant(
        "functions-release-past-the-waiters",
        "a release by a function passes the name on",
        "FunctionStatements._release_by_function",
        "IF NOT released THEN",
        "IF false THEN",
        f"{HOLDING}::test_a_waiter_of_dblock_gets_what_a_caller_releases[threads]",
    ),
    Mutant(
        "functions-under-an-old-snapshot",
        "no function grants by rows that are not the newest",
        ACQUIRE,
        "{check.ISOLATION}",
        "",
        f"{HOLDING}::test_a_stricter_isolation_level_is_refused[REPEATABLE READ]",
    ),
    Mutant(
        "functions-renew-what-a-failover-ended",
        "a hold whose epoch is over is lost",
        "FunctionStatements._renew_by_function",
        "IF state.fence <= known.epoch THEN",
        "IF false THEN",
        f"{FAULTS}::test_a_failover_that_a_function_finds_is_one_for_users_of_dblock",
    ),
    Mutant(
        "functions-record-before-a-standby-knows",
        "a TTL is on the standbys before it is granted in a volatile table",
        "FunctionStatements._trust",
        "AND relpersistence = 'u'",
        "AND false",
        f"{FAULTS}::test_volatile_tables_with_synchronous_standbys_are_refused",
    ),
    Mutant(
        "functions-lock-the-witness-first",
        "all that change the epoch's row and the witness's lock them in one order",
        "WitnessStatements.record_ttl",
        "FROM announced, {self.witness_table} AS w",
        "FROM {self.witness_table} AS w",
        f"{FAULTS}::test_transactions_that_record_a_ttl_wait_for_each_other[dblock]",
    ),
    Mutant(
        "functions-let-a-stale-fence-pass",
        "the gate lets no fence pass after a larger one",
        "FunctionStatements._pass_gate",
        "IF newest > $2 THEN",
        "IF false THEN",
        f"{MAKING}::test_the_gate_is_that_of_dblock",
    ),
    Mutant(
        "functions-stay-as-they-were",
        "every upgrade brings the functions up to date",
        "schema.migrate.upgrade",
        'elif functions or (revision == "head" and _functions(connection, dialect)):',
        "elif functions:",
        f"{MAKING}::test_every_upgrade_brings_them_up_to_date_and_keeps_their_rights",
    ),
    Mutant(
        "functions-outlast-a-downgrade",
        "a downgrade drops the functions",
        "schema.migrate.downgrade",
        "_run(connection, dialect.drop_functions())",
        "pass",
        f"{MAKING}::test_a_downgrade_drops_them[base]",
    ),
)
