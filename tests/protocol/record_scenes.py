"""The scenes of everything beside a lease and a row: slots, elections, calls, jobs, operators."""

from __future__ import annotations

from functools import partial
from typing import Any

from dblock.protocol import (
    ballot,
    election,
    epoch,
    job_runs,
    membership,
    once,
    overview,
    retiring,
)
from dblock.protocol.doubt import Doubt
from dblock.protocol.job_runs import JobRun
from dblock.protocol.lease import LeaseRequest
from dblock.protocol.slots import SlotAttempt, resize
from dblock.protocol.steps import Procedure
from tests.protocol.record_rows import SLOT
from tests.protocol.stage import HELD, LOST, START, TTL, Scene, Stage

RUN = JobRun("report", SLOT, 3)
ONLY_POSTGRESQL, WITHOUT_WITNESS = ("postgresql",), ("mariadb", "sqlite")


def taking_a_slot(stage: Stage, *, known: bool = False) -> Procedure[Any]:
    return SlotAttempt(
        stage.exchange("api", wait=0.0),
        LeaseRequest("api", "token", "me", TTL),
        name="api",
        limit=2,
        known=known,
    ).begin()


def resizing(stage: Stage) -> Procedure[Any]:
    return resize(stage.exchange("api"), 2, 4, Doubt())


def proclaiming(stage: Stage) -> Procedure[None]:
    return election.proclaim(stage.exchange(), "token", lambda: HELD, '"10.0.0.5"', Doubt())


def calling(stage: Stage) -> Procedure[None]:
    return election.call(stage.exchange())


def asking_for_the_leader(stage: Stage) -> Procedure[Any]:
    return election.leader(stage.exchange())


def observing(stage: Stage) -> Procedure[Any]:
    return election.observe(stage.exchange(), None, 1.0, "observer")


def claiming(stage: Stage, wait: float | None = 0.0) -> Procedure[Any]:
    return once.claim(stage.exchange("order 7", wait=wait), "token", None, 3600.0)


def finishing(stage: Stage) -> Procedure[None]:
    return once.finish(stage.exchange("order 7"), "token", '"done"')


def forgetting(stage: Stage) -> Procedure[None]:
    return once.forget(stage.exchange("order 7"), "token")


def asking_for_the_time(stage: Stage) -> Procedure[Any]:
    return job_runs.clock(stage.exchange())


def beginning_a_run(stage: Stage) -> Procedure[Any]:
    return job_runs.begin(stage.exchange(), RUN, "me")


def ending_a_run(stage: Stage) -> Procedure[None]:
    return job_runs.end(stage.exchange(), RUN, 0)


def reopening(stage: Stage) -> Procedure[Any]:
    return job_runs.reopen(stage.exchange(), SLOT)


def voting(stage: Stage) -> Procedure[Any]:
    request = LeaseRequest("report", "token", "me", TTL)
    return ballot.vote(stage.exchange(wait=0.0), request, "a,b,c")


def stamping(stage: Stage) -> Procedure[bool]:
    request = LeaseRequest("report", "token", "me", TTL)
    return ballot.stamp(stage.exchange(wait=0.0), request, 7, "a,b,c")


def reading_a_member(stage: Stage) -> Procedure[Any]:
    return membership.read(stage.exchange(""))


def joining(stage: Stage) -> Procedure[None]:
    change = membership.Rewrite("a,b,c pausing ", "a,b,c ", 30_000, fence=7)
    return membership.rewrite(stage.exchange(""), change)


def listing_last_runs(stage: Stage) -> Procedure[Any]:
    return job_runs.last_of_each(stage.exchange(""), 10)


def pruning(stage: Stage) -> Procedure[Any]:
    return job_runs.prune(stage.exchange(""), 3600.0)


def retiring_names(stage: Stage) -> Procedure[Any]:
    return retiring.retire(stage.exchange(""), 3600.0)


def showing(stage: Stage) -> Procedure[Any]:
    return overview.show(stage.exchange(), 2)


def listing(stage: Stage) -> Procedure[Any]:
    return overview.look_at_all(stage.exchange(""))


def covering_a_ttl(stage: Stage) -> Procedure[Any]:
    """A TTL longer than any before."""
    return epoch.consult(stage.exchange(""), 7200.0)


def pausing(stage: Stage) -> Procedure[Any]:
    return epoch.pause(stage.exchange(""), 60.0)


def standing_out(stage: Stage) -> Procedure[None]:
    """A waiter registers, and leaves."""
    waiter = stage.waiter("lease", {})
    yield from waiter.stand_out(START)
    yield from waiter.leave()


RECORD_SCENES = [
    # --- a semaphore -------------------------------------------------------------------------
    Scene("a slot is free", taking_a_slot),
    Scene("the slot of the last time is free", partial(taking_a_slot, known=True)),
    Scene(
        "the slot of the last time is held, and another is free",
        partial(taking_a_slot, known=True),
        {"grant_slot": ["refused", "granted"]},
    ),
    Scene("all slots are held", taking_a_slot, {"grant_slot": ["refused"]}),
    Scene(
        "the first caller of a semaphore",
        taking_a_slot,
        {
            "grant_slot": ["refused"] * 2 + ["granted"],
            "look_at_slots": ["no limit", "one without a row"],
        },
    ),
    Scene(
        "a semaphore with another limit",
        taking_a_slot,
        {"grant_slot": ["refused"], "look_at_slots": ["another limit"]},
    ),
    Scene(
        "a semaphore's name is an election's",
        taking_a_slot,
        {"grant_slot": ["refused"], "look_at_slots": ["an election's"]},
    ),
    Scene(
        "a slot was granted, and the reply is lost",
        taking_a_slot,
        {"grant_slot": [LOST], "look_at_slots": ["mine"]},
    ),
    Scene("a semaphore is resized", resizing),
    Scene("a semaphore is resized, and the reply is lost", resizing, {"set_limit": [LOST]}),
    # --- an election -------------------------------------------------------------------------
    Scene("a leader proclaims a value", proclaiming),
    Scene(
        "a leader proclaims a value, and the reply is lost", proclaiming, {"write_value": [LOST]}
    ),
    Scene(
        "a former leader proclaims a value",
        proclaiming,
        {"write_value": ["none"], "look": ["followed"]},
    ),
    Scene(
        "an election's name is a semaphore's",
        proclaiming,
        {"write_value": ["none"], "look": ["mine"]},
    ),
    Scene("a leader resigns, and observers are notified", calling, {}, ONLY_POSTGRESQL),
    Scene("a caller asks for the leader", asking_for_the_leader),
    Scene(
        "an observer sees no leader, and then one",
        observing,
        {"read_leader": ["nobody", "nobody"], "wait_turn": ["in front, listening"] * 3},
    ),
    # --- a call that happens once ------------------------------------------------------------
    Scene("the first call with its key", claiming),
    Scene("a call that is repeated", claiming, {"claim_once": ["repeated"]}),
    Scene(
        "a call that is under way, and the caller does not wait",
        claiming,
        {"claim_once": ["!busy"]},
    ),
    Scene(
        "a call that is under way, and the caller waits",
        partial(claiming, wait=None),
        {"claim_once": ["!busy", "repeated"]},
    ),
    Scene("a call ends", finishing),
    Scene("a call ends, and its record is gone", finishing, {"finish_once": ["none"]}),
    Scene("a call fails", forgetting),
    # --- a job -------------------------------------------------------------------------------
    Scene("the slot of a job is found by the database's clock", asking_for_the_time),
    Scene("a run begins", beginning_a_run),
    Scene("a run has succeeded in its slot", beginning_a_run, {"begin_run": ["done"]}),
    Scene(
        "a later run is on record",
        beginning_a_run,
        {"begin_run": ["superseded"], "look": ["followed"]},
    ),
    Scene("a run ends", ending_a_run),
    Scene(
        "a run ends when a later run is on record",
        ending_a_run,
        {"end_run": ["none"], "look": ["followed"]},
    ),
    Scene("a slot is opened again", reopening),
    Scene("the last run of each job", listing_last_runs),
    # --- what operators ask for --------------------------------------------------------------
    Scene("a name is shown", showing),
    Scene("a free name is shown", showing, {"look_at_slots": ["no limit"]}),
    Scene("all names are listed", listing),
    Scene(
        "old records are pruned",
        pruning,
        {"prune_applied": ["some"], "prune_once": ["some"], "prune_runs": ["some"]},
    ),
    Scene(
        "unused names are retired",
        retiring_names,
        {"look_for_unused": ["some"], "retire": ["some"]},
    ),
    Scene("operators see a waiter, until it leaves", standing_out),
    # --- the witness -------------------------------------------------------------------------
    Scene(
        "a TTL longer than any before",
        covering_a_ttl,
        {"read_witness": ["there", "longer"]},
        ONLY_POSTGRESQL,
    ),
    Scene("an operator begins a pause", pausing, {"read_witness": ["pause"]}, ONLY_POSTGRESQL),
    Scene("an operator begins a pause where there is no witness", pausing, {}, WITHOUT_WITNESS),
    # --- a member of a quorum ----------------------------------------------------------------
    Scene("a member's vote", voting),
    Scene("a member that refuses", voting, {"vote": ["refused"], "look": ["held"]}),
    Scene(
        "a member's vote whose reply is lost, and nothing was granted",
        voting,
        {"vote": [LOST, "refused"], "look": ["free", "held"]},
    ),
    Scene("a member's vote is stamped", stamping),
    Scene("a stamp without a hold", stamping, {"stamp": ["nothing"]}),
    Scene("a member's record is read", reading_a_member),
    Scene("a restored member joins again", joining),
]
