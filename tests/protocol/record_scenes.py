"""The scenes of everything beside a lease and a row: slots, elections, calls, jobs, operators."""

from __future__ import annotations

from functools import partial
from typing import Any

from dblock.protocol import election, epoch, job_runs, once, overview, retiring
from dblock.protocol.deadline import Deadline
from dblock.protocol.doubt import Doubt
from dblock.protocol.job_runs import JobRun
from dblock.protocol.lease import LeaseRequest
from dblock.protocol.slots import SlotAttempt, resize
from dblock.protocol.steps import Procedure
from tests.protocol.record_rows import SLOT
from tests.protocol.stage import HELD, LOST, START, TTL, Scene, Stage

PATIENCE = 0.2
RUN = JobRun("report", SLOT, 3)
ONLY_POSTGRESQL, WITHOUT_WITNESS = ("postgresql",), ("mariadb", "sqlite")


def taking_a_slot(stage: Stage, *, known: bool = False) -> Procedure[Any]:
    return SlotAttempt(
        stage.dialect,
        LeaseRequest("api", "token", "me", TTL),
        Deadline(START, 0.0, PATIENCE, START),
        name="api",
        limit=2,
        known=known,
    ).begin()


def resizing(stage: Stage) -> Procedure[Any]:
    return resize(stage.dialect, "api", 2, 4, Doubt(), PATIENCE, START)


def proclaiming(stage: Stage) -> Procedure[None]:
    return election.proclaim(
        stage.dialect, "report", "token", lambda: HELD, '"10.0.0.5"', Doubt(), PATIENCE, START
    )


def calling(stage: Stage) -> Procedure[None]:
    return election.call(stage.dialect, "report", PATIENCE, START)


def asking_for_the_leader(stage: Stage) -> Procedure[Any]:
    return election.leader(stage.dialect, "report", PATIENCE, START)


def observing(stage: Stage) -> Procedure[Any]:
    return election.observe(stage.dialect, "report", None, 1.0, "observer", PATIENCE, START)


def claiming(stage: Stage, wait: float | None = 0.0) -> Procedure[Any]:
    return once.claim(
        stage.dialect, "order 7", "token", None, 3600.0, wait=wait, patience=PATIENCE, start=START
    )


def finishing(stage: Stage) -> Procedure[None]:
    return once.finish(stage.dialect, "order 7", "token", '"done"')


def forgetting(stage: Stage) -> Procedure[None]:
    return once.forget(stage.dialect, "order 7", "token")


def asking_for_the_time(stage: Stage) -> Procedure[Any]:
    return job_runs.clock(stage.dialect, PATIENCE, START)


def beginning_a_run(stage: Stage) -> Procedure[Any]:
    return job_runs.begin(stage.dialect, RUN, "me", PATIENCE, START)


def ending_a_run(stage: Stage) -> Procedure[None]:
    return job_runs.end(stage.dialect, RUN, 0, PATIENCE, START)


def reopening(stage: Stage) -> Procedure[Any]:
    return job_runs.reopen(stage.dialect, "report", SLOT, PATIENCE, START)


def listing_last_runs(stage: Stage) -> Procedure[Any]:
    return job_runs.last_of_each(stage.dialect, 10, START)


def pruning(stage: Stage) -> Procedure[Any]:
    return job_runs.prune(stage.dialect, 3600.0, PATIENCE, START)


def retiring_names(stage: Stage) -> Procedure[Any]:
    return retiring.retire(stage.dialect, 3600.0, PATIENCE, START)


def showing(stage: Stage) -> Procedure[Any]:
    return overview.show(stage.dialect, "report", 2, START)


def listing(stage: Stage) -> Procedure[Any]:
    return overview.look_at_all(stage.dialect, START)


def covering_a_ttl(stage: Stage) -> Procedure[Any]:
    """A TTL longer than any before."""
    return epoch.consult(stage.dialect, 7200.0, PATIENCE, START)


def pausing(stage: Stage) -> Procedure[Any]:
    return epoch.pause(stage.dialect, 60.0, PATIENCE, START)


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
]
