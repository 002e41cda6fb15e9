"""The checks of a node of a Galera cluster."""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.values import text
from .finding import Finding, Patient, note, ok, wrong

#: Nodes. With fewer, the nodes that remain after the loss of one are no majority.
SURVIVES = 3
#: This bit of wsrep_sync_wait is for SELECT.
READS = 1
STATUS = ("wsrep_cluster_status", "wsrep_cluster_size", "wsrep_local_state_comment")


def galera(patient: Patient) -> Iterator[Finding]:
    """Check whether the node can commit, and what the cluster survives."""
    rows = patient.ask(
        "SELECT LOWER(variable_name), variable_value FROM information_schema.global_status "
        f"WHERE variable_name IN ({', '.join(map(repr, STATUS))})"
    )
    found = {text(name): text(value) for name, value in rows}
    status, size, state = (found.get(name, "?") for name in STATUS)
    if status != "Primary":
        yield wrong(
            "replication",
            f"a node of a Galera cluster without the majority ({status}, size {size})",
            "it takes no writes: no lock can be taken",
            "give dblock the URL of a proxy that leads to the nodes of the majority",
        )
        return
    yield note(
        "replication",
        f"a Galera cluster of {size}",
        "leases exclude each other on all nodes; of two row locks or guards on two nodes, one "
        "fails at its commit",
        "send all programs that use row locks or guards to the same node",
    )
    if state != "Synced":
        yield wrong(
            "node",
            state,
            "the node is behind the others, and its statements may wait for that or fail",
            "let the proxy lead to nodes with wsrep_local_state_comment = Synced",
        )
    if size.isdigit() and int(size) < SURVIVES:
        yield note(
            "nodes",
            size,
            "when one is lost, the other has no majority: no lock can be taken",
            "add nodes, or garbd, until there are three",
        )
    ((waits,),) = patient.ask("SELECT @@GLOBAL.wsrep_sync_wait")
    if int(waits) & READS:
        yield ok("reads", f"wait for the other nodes' writes (wsrep_sync_wait = {waits})")
    else:
        yield note(
            "reads",
            f"do not wait for the other nodes' writes (wsrep_sync_wait = {waits})",
            "after a change of node, dblock may not see its last grant for a moment: then the name "
            "stays held until its TTL is over",
            "use one node at a time, or:\nSET GLOBAL wsrep_sync_wait = 1;",
        )
