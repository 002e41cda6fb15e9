"""The checks of a member of MySQL's group replication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..dialects.values import text
from .finding import Finding, Patient, note, ok, wrong

#: Members. With fewer, the rest after the loss of one is no majority.
SURVIVES = 3
#: Of group_replication_consistency: a new primary first applies what its group has committed.
CAUGHT_UP = {"BEFORE_ON_PRIMARY_FAILOVER", "BEFORE", "AFTER", "BEFORE_AND_AFTER"}
#: And a statement waits for what the other members have committed.
CURRENT = {"BEFORE", "AFTER", "BEFORE_AND_AFTER"}
PREFIX = "group_replication_"


def group(patient: Patient, values: Mapping[str, str]) -> Iterator[Finding]:
    """Check whether the group can commit, and what it survives; ``values`` are its settings."""
    rows = patient.ask(
        "SELECT member_id = @@server_uuid, member_state "
        "FROM performance_schema.replication_group_members"
    )
    states = [text(state) for _, state in rows]
    own = next((text(state) for mine, state in rows if mine), "OFFLINE")
    online = states.count("ONLINE")
    if own != "ONLINE":
        yield wrong(
            "replication",
            f"a member of a group, {own}",
            "it takes no writes, or ones that the group does not have: no lock is safe here",
            "give dblock the URL of a proxy that leads to members that are ONLINE",
        )
        return
    reached = len(states) - states.count("UNREACHABLE")  # one that joins has a vote already
    if reached * 2 <= len(states):
        yield wrong(
            "replication",
            f"a group of {len(states)}, of which {reached} can be reached",
            "that is no majority, so every commit waits: no lock can be taken",
            "give dblock the URL of a proxy that leads to the members of the majority",
        )
        return
    single = values[f"{PREFIX}single_primary_mode"] == "ON"
    yield _kind(len(states), single=single)
    if online < SURVIVES:
        yield note(
            "members",
            str(online),
            "when one is lost, the other has no majority: no lock can be taken",
            "add members until there are three",
        )
    yield _reads(values[f"{PREFIX}consistency"], CAUGHT_UP if single else CURRENT)


def _kind(size: int, *, single: bool) -> Finding:
    if single:
        return ok("replication", f"a group of {size} with one primary")
    return note(
        "replication",
        f"a group of {size} in which each member takes writes",
        "leases exclude each other on all members; of two row locks or guards on two members, one "
        "fails at its commit",
        "send all programs that use row locks or guards to the same member",
    )


def _reads(consistency: str, enough: set[str]) -> Finding:
    found = f"{PREFIX}consistency = {consistency}"
    if consistency in enough:
        return ok("reads", found)
    wanted = "BEFORE_ON_PRIMARY_FAILOVER" if "BEFORE_ON_PRIMARY_FAILOVER" in enough else "BEFORE"
    return note(
        "reads",
        found,
        "after a change of member, dblock may not see its last grant for a moment: then the name "
        "stays held until its TTL is over",
        f"SET PERSIST {PREFIX}consistency = '{wanted}';",
    )
