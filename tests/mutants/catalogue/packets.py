"""Mutants of how packets of several statements are sent, and of the sessions that send them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SENT = "tests/connections/test_mysql_packets.py"
ONE_REQUEST = "a packet of the simulation's is one request, which its adapter ends by itself"

PACKETS = (
    Mutant(
        "a-failed-packet-stays-open",
        "a connection whose state is not known is not used",
        "packets.PacketSender.send",
        "self._undo(within)",
        "pass",
        f"{SENT}::test_one_that_fails_leaves_no_transaction_open[busy-mysql]",
        beyond=ONE_REQUEST,
    ),
    Mutant(
        "a-commit-that-fails-is-a-refusal",
        "an unknown outcome is looked for",
        "packets.PacketSender.send",
        "raise CommitFailed(*error.args) from error",
        "raise",
        f"{SENT}::test_a_caller_whose_commit_fails_looks_for_its_hold[said_to_fail-mysql]",
        beyond=ONE_REQUEST,
    ),
    Mutant(
        "a-grant-on-mysql-is-not-committed",
        "one holder",
        "sessions.MYSQL_SETTINGS",
        "SET SESSION autocommit = 1, ",
        "SET SESSION ",
        f"{SENT}::test_where_sessions_begin_without_autocommit[own]",
        beyond="no server of the simulation has autocommit off",
    ),
)
