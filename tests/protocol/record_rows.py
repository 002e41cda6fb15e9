"""The rows of the stage's answers to the commands for records: slots, elections, calls, jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dblock.protocol import commands

Rows = Sequence[Sequence[Any]]

TTL, THEN = 30.0, datetime(2026, 1, 1)
#: The slot of a job's run.
SLOT = "2026-01-01"

#: The usual answers to the commands of this file.
USUAL = {
    "grant_slot": "granted",
    "look_at_slots": "all held",
    "set_limit": "written",
    "write_value": "written",
    "call_observers": "called",
    "read_leader": "a leader",
    "claim_once": "the first",
    "finish_once": "written",
    "forget_once": "written",
    "begin_run": "begun",
    "end_run": "written",
    "forget_run": "written",
    "list_runs": "succeeded",
    "look_for_unused": "no more",
    "list_held": "held",
    "distrust": "written",
    "vote": "granted",
    "stamp": "written",
    "read_member": "voting",
    "write_member": "written",
    "raise_fences": "written",
}


def is_in_packet(command: object) -> bool:
    """Whether MySQL's reply begins with a column that says that a row was in use."""
    if isinstance(command, commands.Grant):
        return not command.known
    return isinstance(command, commands.Join | commands.Renew | commands.Vote)


def record_rows(command: object, answer: str) -> Rows | None:
    """The rows of an answer; None if the command is no command of this file."""
    one: Rows = [(1,)]
    match command:
        case commands.GrantSlot(name=name):
            return [(3, TTL, f"{name}#1")] if answer == "granted" else []
        case commands.LookAtSlots(name=name):
            return _slots(name, answer)
        case commands.Vote():
            return [(3, TTL, "token")] if answer == "granted" else []
        case commands.ReadMember():
            return [('"a,b,c "', 30_000, -1.0, "", 3)]
        case commands.WriteValue(fence=fence):
            return [(fence,)] if answer == "written" else []
        case commands.ReadLeader():
            leader = (True, "me", 3, THEN, 25.0, "token", '"10.0.0.5"', 3)
            return [leader] if answer == "a leader" else []
        case commands.ClaimOnce(token=token):
            first, repeated = (token, None, None), ("its token", None, '"done"')
            return [first if answer == "the first" else repeated]
        case commands.BeginRun(fence=fence):
            return [({"begun": fence, "done": 1, "superseded": fence + 1}[answer],)]
        case commands.ListRuns() | commands.ListLastRuns():
            return [("report", SLOT, 3, "me", THEN, THEN, 0, False)]
        case commands.ReadClock():
            return [(THEN,)]
        case commands.LookForUnused():
            return [("report", 3) if answer == "some" else (None, None)]
        case commands.ListHeld():
            return [("report", 3, "token", "me", THEN, THEN, 25.0, None)]
        case commands.ListHeldRuns() | commands.ListWaiters():
            return []
        case commands.Retire() | commands.PruneValues():
            return one if answer == "some" else []
        case commands.PruneApplied() | commands.PruneOnce() | commands.PruneRuns():
            return one if answer == "some" else []
        case (
            commands.SetLimit()
            | commands.FinishOnce()
            | commands.ForgetOnce()
            | commands.EndRun()
            | commands.ForgetRun()
            | commands.Stamp()
            | commands.WriteMember()
            | commands.RaiseFences()
        ):
            return one if answer == "written" else []
        case _:
            return None


def _slots(name: str, answer: str) -> Rows:
    """A semaphore with two slots: its limit beside the row of each of its names."""
    held = ("2", f"{name}#1", 2, "its token", "another", THEN, THEN, 25.0, None, None, False)
    mine = ("2", f"{name}#1", 3, "token", "me", THEN, THEN, 29.0, None, None, False)
    free = ("2", f"{name}#2", 2, None, "another", THEN, THEN, -1.0, None, None, True)
    both = (held, ("2", f"{name}#2", *held[2:]))
    return {
        "all held": both,
        "one free": (held, free),
        "one without a row": (held,),
        "mine": (mine, free),
        "no limit": ((None,) * 11,),
        "another limit": (("3", *held[1:]),),
        "an election's": (("0", *(None,) * 10),),
    }[answer]
