"""Mutants of what dblock does in a Galera cluster (promises 1 and 6)."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

TESTS = "tests/connections/test_clustered.py"
WRITES = f"{TESTS}::test_whatever_locks_a_guard_writes_it_in_a_cluster[lone node]"
PAGE = "tests/dialects/test_sql.py::test_what_is_sent[galera]"

CLUSTERS = (
    Mutant(
        "a-guard-that-another-node-does-not-see",
        "a guard writes its row in a cluster, so a stale one cannot commit",
        "mariadb.row.RowStatements.guard",
        "if self.clustered:",
        "if False:",
        WRITES,
        beyond=reasons.CLUSTER,
    ),
    Mutant(
        "a-row-lock-that-another-node-does-not-see",
        "so does a row lock, and of two one cannot commit",
        "mariadb.row.RowStatements.lock_row",
        "if self.clustered:",
        "if False:",
        WRITES,
        beyond=reasons.CLUSTER,
    ),
    Mutant(
        "a-grant-that-another-node-does-not-see",
        "and a grant, which a stale guard's commit then meets",
        "mariadb.base.Tables.take_row",
        "if self.clustered:",
        "if False:",
        WRITES,
        beyond=reasons.CLUSTER,
    ),
    Mutant(
        "a-write-that-changes-nothing",
        "what is written has to change: else no other node hears of it",
        "dblock.dialects.mariadb.fragments",
        'WRITTEN = "writes = COALESCE(writes, 0) + 1"',
        'WRITTEN = "writes = COALESCE(writes, 0)"',
        WRITES,
        beyond=reasons.CLUSTER,
    ),
    Mutant(
        "a-look-at-what-was",
        "a guard's look sees who has taken the name over on another node",
        "mariadb.base.Tables.in_order",
        "if not self.is_node:",
        "if True:",
        PAGE,
        beyond=reasons.CLUSTER,
    ),
    Mutant(
        "no-cluster-at-first",
        "as long as nobody knows what the server is, it may be a node of a cluster",
        "mariadb.base.Tables._name_tables",
        "self.clustered = self.place is None or self.is_node",
        "self.clustered = self.is_node",
        f"{TESTS}::test_the_first_statement_is_for_a_cluster[lone node]",
        beyond=reasons.CLUSTER,
    ),
    Mutant(
        "once-no-cluster-never-one",
        "each connection tells whether its server is a node of a cluster",
        "SchemaCheck.__call__",
        "if known is not None and known.clustered == self._dialect.adapter.clustered:",
        "if known is not None:",
        f"{TESTS}::test_locks_notice_that_their_server_has_joined_a_cluster",
    ),
)
