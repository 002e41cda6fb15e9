"""Mutants of counters."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

PLANTED = "tests/faults/test_planted.py"
EXACT, ROOM = "tests/contract/test_counter_exact.py", "tests/contract/test_counter_room.py"
STRIPES = "tests/contract/test_counter_stripes.py"

COUNTERS = (
    Mutant(
        "counter-without-floor",
        "take never goes below the floor",
        "Numbers.room",
        "least if floor is None else max(least, floor)",
        "least",
        f"{PLANTED}::test_a_counter_stays_above_its_floor_and_counts_a_key_once[sqlite]",
        dies_in="sqlite stock:",
    ),
    Mutant(
        "counter-forgets-keys",
        "a change with an idempotency key is made once",
        "CounterTable.record",
        "return False",
        "return True",
        f"{PLANTED}::test_a_counter_stays_above_its_floor_and_counts_a_key_once[postgresql]",
    ),
    Mutant(
        "counter-takes-from-every-row",
        "a counter changes one row, or none",
        "CounterTable.alone",
        "self.readable(many).scalar_subquery() == 1",
        "self.readable(many).scalar_subquery() >= 1",
        "tests/contract/test_counter_key.py::"
        "test_a_change_of_a_key_that_two_rows_have_changes_nothing[threads-postgresql]",
    ),
    Mutant(
        "stripes-below-the-floor",
        "a stripe alone is taken from only if it keeps the floor of all",
        "counters.stripes.StripedTable._shift_one",
        "rounded(value, numbers).between(least, most)",
        "rounded(value, numbers) <= most",
        f"{STRIPES}::test_what_one_row_does_not_have[threads-postgresql]",
    ),
    Mutant(
        "stripes-wait-in-line",
        "nobody waits while a stripe is free",
        "counters.stripes.StripedTable._shift_one",
        "skip_locked=free",
        "skip_locked=False",
        f"{STRIPES}::test_nobody_waits_while_a_row_is_free[threads-postgresql]",
    ),
    Mutant(
        "stripes-gathered-without-locks",
        "a sum that is taken from is nobody else's to change",
        "counters.stripes.StripedTable._gather",
        "rows = self._rows(transaction, key, lock=True)",
        "rows = self._rows(transaction, key, lock=False)",
        f"{STRIPES}::test_what_others_are_taking_is_waited_for[threads-postgresql]",
    ),
    Mutant(
        "counter-never-locks",
        "an optimistic update that lost a race locks the row",
        "Counter.update",
        "lock = number > 1 or self._runtime.now() < self._hot_until",
        "lock = False",
        "tests/contract/test_counter_races.py::"
        "test_update_keeps_others_off_after_a_lost_race[threads-postgresql]",
    ),
    Mutant(
        "counter-rounds",
        "an amount that the column cannot hold exactly is refused",
        "numbers._EXACTLY",
        "traps=[Inexact, InvalidOperation]",
        "traps=[InvalidOperation]",
        f"{EXACT}::test_decimals_that_a_numeric_would_round[threads-postgresql]",
    ),
    Mutant(
        "counter-trusts-the-model",
        "what a column holds is what the database says of it",
        "SessionTable.kind",
        "if kind is None or isinstance(kind, NullType):",
        "if True:",
        f"{EXACT}::test_a_column_that_is_not_what_the_model_says",
    ),
    Mutant(
        "counter-trusts-the-model-of-a-domain",
        "what a column holds is what the database says of it",
        "SessionTable.kind",
        "kind = kind.data_type",
        "kind = None",
        f"{EXACT}::test_a_domain_of_a_domain",
    ),
    Mutant(
        "counter-compares-what-a-model-rounds",
        "an update ends, however the model reads the number",
        "CounterTable.read",
        "if to_compare:",
        "if False:",
        f"{EXACT}::test_a_value_that_the_model_rounds",
    ),
    Mutant(
        "counter-forgets-decimals-of-doubles",
        "an amount that the column cannot hold exactly is refused",
        "Numbers.of",
        "or (floating and scale is not None)",
        "or False",
        f"{EXACT}::test_floating_point_with_decimals",
    ),
    Mutant(
        "counter-overflows",
        "no statement of a counter's fails for the column's size",
        "Numbers.room",
        "most = _difference(most, n)",
        "pass",
        f"{ROOM}::test_no_room_for_more[threads-postgresql-NUMERIC(4, 2)]",
    ),
    Mutant(
        "counter-below-unsigned",
        "a counter never takes what the column cannot be without, floor or not",
        "Numbers.of",
        "least = 0 if unsigned else -(2 ** (bits - 1))",
        "least = -(2 ** (bits - 1))",
        f"{ROOM}::test_unsigned_columns",
    ),
    Mutant(
        "counter-keeps-a-key",
        "a change that was refused leaves no key",
        "Counter._change_in",
        "if idempotency_key is not None and not dialect.traits.failure_aborts:",
        "if False:",
        f"{ROOM}::test_a_constraint_of_the_users[threads-mariadb]",
    ),
    Mutant(
        "no-change-is-made-again",
        "who takes once meets no deadlock",
        "BorrowedTransaction.note_whether_fresh",
        "not self.driver.has_begun(self.driver_connection)",
        "False",
        f"{STRIPES}::test_who_takes_once_meets_no_deadlock[threads-postgresql]",
        beyond=reasons.COUNTERS,
    ),
    Mutant(
        "what-was-done-before-is-lost",
        "a change that is made again loses nothing of the user's",
        "BorrowedTransaction.note_whether_fresh",
        "not self.driver.has_begun(self.driver_connection)",
        "True",
        f"{STRIPES}::test_what_a_transaction_did_before_is_not_lost[threads-postgresql]",
        beyond=reasons.COUNTERS,
    ),
    Mutant(
        "counter-blames-the-amount",
        "who is refused is told the reason",
        "Counter._refusal",
        "not full and _between(least, value, most)",
        "not full and False",
        f"{ROOM}::test_a_trigger_keeps_the_row[threads-sqlite]",
    ),
    Mutant(
        "counter-compares-floats",
        "nothing is compared that was rounded when it was read",
        "Counter._check_comparable",
        "if self._columns.version is None and numbers.inexact:",
        "if False:",
        f"{EXACT}::test_floating_point[threads-mariadb-FLOAT]",
    ),
)
