"""Mutants of what is done about servers that only speak PostgreSQL's or MySQL's protocol."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

TESTS = "tests/databases/test_look_alikes.py"
REFUSED = "a server that only looks like the real one is refused by name"
USERS = f"{TESTS}::test_a_transaction_of_the_users[postgresql]"

LOOKS_ALIKE = (
    Mutant(
        "a-look-alike-is-used",
        REFUSED,
        "Psycopg.prepare_connection",
        "self.recognise(said)",
        "",
        f"{TESTS}::test_a_lease[postgresql]",
        beyond=reasons.LOOK_ALIKE,
    ),
    Mutant(
        "a-look-alike-lacks-functions",
        REFUSED,
        "Psycopg._who",
        "if self.classify(error) is None:",
        "if self.classify(error) is not None:",
        f"{TESTS}::test_functions_that_are_not_there",
        beyond=reasons.LOOK_ALIKE,
    ),
    Mutant(
        "a-look-alike-counts",
        REFUSED,
        "SessionTable.borrow",
        "transaction.recognise()",
        "",
        USERS,
    ),
    Mutant(
        "a-look-alike-is-asked-each-time",
        "it costs no round trip but the first",
        "Adapter.recognise",
        "self.reached = self.kind_of(said)",
        "",
        USERS,
        beyond=reasons.COST,
    ),
    Mutant(
        "a-look-alike-is-not-trusted-by-the-schema",
        "trust_server is for every way to connect",
        "migrate.migrating",
        "prefix=prefix, trust_server=trust_server",
        "prefix=prefix",
        f"{TESTS}::test_the_tables[postgresql]",
    ),
)
