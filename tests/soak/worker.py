"""A worker's process: does what its profile says, again and again, and writes down all of it."""

from __future__ import annotations

import logging
import os
import threading
import traceback

from dblock import Locks

from .believing import Believer
from .chaos import Chaos
from .handing_off import HandingOff
from .history import Recorder
from .leaving import Leaver
from .looping import Equal, LooperOrTryer
from .mixing import Mixed
from .plan import Plan
from .queueing import Fresh
from .recorded import TIMEOUTS
from .role import Role
from .voting import Voter
from .yardstick import Yardstick

# What the workers of each profile do.
WORKERS: dict[str, type[Role]] = {
    "chaos": Chaos,
    "failover": Believer,
    "quorum": Voter,
    "user-locks": LooperOrTryer,
    "leaves": Leaver,
    "queues": Fresh,
    "fair": Equal,
    "hand-offs": HandingOff,
    "patroni-async": Mixed,
    "patroni-sync": Mixed,
    "patroni-quorum": Mixed,
    "patroni-hung": Mixed,
    "galera-one": Mixed,
    "galera-all": Mixed,
}


def work(plan: Plan, process: str) -> None:
    """Run one worker, until it is to stop or whoever started it is gone."""
    parent = os.getppid()
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL)  # connections break, as they should
    recorder = Recorder(plan.directory, process)
    role = WORKERS[plan.profile]
    life = recorder.begin("worker", pid=os.getpid(), like=role.like)

    def failed(what: threading.ExceptHookArgs) -> None:
        error = traceback.format_exception(what.exc_type, what.exc_value, what.exc_traceback)
        recorder.begin("thread").tell("error", error="".join(error))

    threading.excepthook = failed
    try:
        with Yardstick(recorder), Locks(plan.url, timeouts=TIMEOUTS) as locks:
            worker = role(plan, recorder, locks)
            while os.getppid() == parent and not plan.stopped:
                worker.section()
        life.tell("ok")
    except BaseException:
        life.tell("error", error=traceback.format_exc())
