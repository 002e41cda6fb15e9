"""What the protocols ask a database for, step by step: a page for each database, kept in `traces`.

If you change a protocol, write the pages again (``python -m tests.golden traces``), and read the
change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dblock import RetryPolicy
from dblock.dialects import DIALECTS
from dblock.protocol import guard, rate, release, renew, row_lock
from dblock.protocol.acquire import acquire
from dblock.protocol.attach import Detached, attach
from dblock.protocol.lease import Held, LeaseRequest, ReleaseRequest
from dblock.protocol.renew import Asked
from dblock.protocol.state import Renewal
from dblock.protocol.steps import Procedure
from dblock.protocol.waiting import WaitOptions
from tests.protocol.record_scenes import RECORD_SCENES
from tests.protocol.stage import (
    HELD,
    LOST,
    PATIENCE,
    READER,
    READERS,
    START,
    TTL,
    Scene,
    Script,
    Stage,
)

PAGES = Path(__file__).parent / "traces"
USUAL = RetryPolicy().drawing(lambda: 0.5)
EVERY = tuple(sorted(DIALECTS))


def taking(
    stage: Stage,
    wait: float | None = None,
    *,
    fair: bool = False,
    hot: bool = False,
    short: bool = True,
    policy: RetryPolicy = USUAL,
    holds: dict[str, int | None] | None = None,
    shares: bool = False,
) -> Procedure[Any]:
    waiter = stage.waiter("shared" if shares else "lease", holds or {})
    return acquire(
        stage.exchange(wait=wait),
        LeaseRequest("report", READER if shares else "token", "me", TTL, short, shares=shares),
        WaitOptions(
            policy,
            "report",
            lambda: waiter,
            fair,
            in_server=wait != 0 and not shares and stage.dialect.traits.can_wait_in_server,
        ),
        hot=hot,
        look_first=shares,
    )


def locking(stage: Stage, wait: float | None = None, *, borrowed: bool = False) -> Procedure[Any]:
    return row_lock.lock(
        stage.exchange(wait=wait),
        USUAL,
        borrowed=borrowed,
        waiter=partial(stage.waiter, "row", {}),
    )


def releasing(
    stage: Stage,
    *,
    held: Held = HELD,
    with_user_lock: bool = False,
    guarded: bool = False,
    reader: str | None = None,
) -> Procedure[None]:
    request = ReleaseRequest(
        "report", "token" if reader is None else READERS, held, reader, with_user_lock, guarded
    )
    return release.release(stage.exchange(), request)


def abandoning(stage: Stage) -> Procedure[None]:
    """One that stands in the queue is interrupted."""
    request = LeaseRequest("report", "token", "me", TTL, tickets=["ticket"])
    return release.abandon(stage.exchange(wait=PATIENCE), request, [])


def renewing_it(stage: Stage) -> Procedure[Any]:
    return renew.renew(stage.dialect, Asked(Renewal("report", "token", TTL), HELD), START)


def guarding(stage: Stage) -> Procedure[None]:
    return guard.guard(stage.exchange(), "token", lambda: HELD)


def attaching(stage: Stage) -> Procedure[Held]:
    request = LeaseRequest("report", "token", "me", TTL)
    detached = Detached("report", "old token", 3)
    return attach(stage.exchange(wait=PATIENCE), detached, request)


def limiting(stage: Stage, wait: float = 0.0) -> Procedure[float | None]:
    cells = rate.CellRate.of(limit=10, per=6.0, burst=1, cost=1)
    return rate.take(stage.exchange("api", wait=wait), "token", cells)


QUEUES, IN_SERVER, LOOKS_FIRST = ("postgresql",), ("mariadb",), ("mariadb", "sqlite")
PASSED_ON: Script = {"wait_notification": ["passed on"]}
users = partial(locking, borrowed=True)
sharing = partial(taking, shares=True)
leaving = partial(releasing, reader=READER)

SCENES = [
    # --- a lease -----------------------------------------------------------------------------
    Scene("free", taking, {"grant": ["granted"]}),
    Scene("held, and nobody waits for it", partial(taking, wait=0)),
    Scene(
        "held until it is released",
        taking,
        {
            "grant": ["refused", "granted"],
            "look": ["held", "held", "free"],
            "join": ["first", "granted"],
            "wait_notification": ["passed on"],
        },
    ),
    Scene("passed on to one who does not renew", partial(taking, short=False), PASSED_ON, QUEUES),
    Scene(
        "passed on to one who does not renew, and lost by then",
        partial(taking, short=False),
        {
            **PASSED_ON,
            "renew": ["none"],
            "look": ["held", "followed", "followed"],
            "look_queued": ["out"],
            "join": ["first", "granted"],
        },
        QUEUES,
    ),
    Scene(
        "passed on, and the database is away when who does not renew asks",
        partial(taking, wait=1.0, short=False),
        {**PASSED_ON, "renew": ["!unreachable"] * 500, "leave": ["none"]},
        QUEUES,
    ),
    Scene(
        "passed on with the fence of a hold before",
        taking,
        {"wait_notification": ["passed on again", "passed on"]},
        QUEUES,
    ),
    Scene(
        "passed on, and heard of late, but not too late",
        taking,
        {"wait_notification": ["passed on long ago"], "look_queued": ["mine"]},
        QUEUES,
    ),
    Scene(
        "passed on, and heard of too late",
        taking,
        {"wait_notification": ["passed on long ago", "passed on"]},
        QUEUES,
    ),
    Scene(
        "a hot name, in a process that listens",
        partial(taking, hot=True),
        {"wait_turn": ["in front, listening"] * 2, "wait_notification": ["passed on"]},
        QUEUES,
    ),
    Scene(
        "a hot name, in a process that does not listen",
        partial(taking, hot=True),
        {"grant": ["granted"]},
        QUEUES,
    ),
    Scene(
        "a hot name that is free",
        partial(taking, hot=True),
        {"wait_turn": ["in front, listening"], "join": ["turn"]},
        QUEUES,
    ),
    Scene(
        "given up, and passed on at the same moment",
        partial(taking, wait=1.0),
        {"leave": ["none"]},
        QUEUES,
    ),
    Scene(
        "given up, and nobody can be asked",
        partial(taking, wait=1.0),
        {"leave": ["!privilege"]},
        QUEUES,
    ),
    Scene(
        "interrupted, and passed on at the same moment",
        abandoning,
        {"leave": ["none"], "look": ["followed"]},
        QUEUES,
    ),
    Scene(
        "interrupted",
        abandoning,
        {"look": ["held"]},
    ),
    Scene(
        "held until it is freed, and nobody is passed it",
        taking,
        {"join": ["first", "granted"], "wait_notification": ["called"]},
        QUEUES,
    ),
    Scene(
        "held until it is released, and asked for when it has been waited for a moment",
        taking,
        {
            "grant": ["refused", "refused", "granted"],
            "look": ["held"] * 5,
            "look_queued": ["first"] * 6 + ["turn"],
            "join": ["first", "granted"],
            "wait_in_server": ["!busy", "at once"],
        },
    ),
    Scene(
        "held, in a process that cannot listen",
        taking,
        {
            "wait_turn": ["in front, deaf"] * 9,
            "look": ["held", "free"],
            "grant": ["refused", "granted"],
        },
        QUEUES,
    ),
    Scene(
        "free in between, in a process that cannot listen",
        taking,
        {"wait_turn": ["in front, deaf"] * 9, "look": ["free"], "grant": ["refused", "granted"]},
        QUEUES,
    ),
    Scene("held for longer than it is waited for", partial(taking, wait=1.0)),
    Scene(
        "held for longer than who holds another waits for it",
        partial(taking, wait=1.0, holds={"sales": 7}),
    ),
    Scene(
        "a call that comes to nothing",
        taking,
        {"take": ["refused", "granted"], "wait_notification": ["called", "called"]},
        QUEUES,
    ),
    Scene(
        "free in between, so that nobody calls",
        taking,
        {"join": ["turn"]},
        QUEUES,
    ),
    Scene(
        "thrown out of the queue",
        taking,
        {"look_queued": ["out", "first", "turn"], "join": ["first", "second", "granted"]},
        QUEUES,
    ),
    Scene(
        "others of this process come first",
        partial(taking, hot=True),
        {
            "grant": ["refused", "granted"],
            "wait_turn": ["not in front", "not in front", "in front"],
            "look": ["held", "free"],
            "join": ["granted"],
        },
    ),
    Scene(
        "others of this process found that the database is away",
        partial(taking, wait=5.0, hot=True),
        {
            "wait_turn": ["alarm", "in front"],
            "grant": ["granted"],
            "join": ["granted"],
        },
    ),
    Scene(
        "held until it is released, in strict order",
        partial(taking, fair=True),
        {
            "look": ["held", "held"],
            "look_queued": ["first", "turn"],
            "join": ["first", "granted"],
            "wait_notification": ["passed on"],
        },
    ),
    Scene(
        "four tries",
        partial(taking, policy=RetryPolicy.textbook()),
    ),
    Scene(
        "a hot name, and its user lock is had",
        partial(taking, hot=True),
        {"wait_turn": ["in front, listening"], "wait_in_server": ["at once"], "grant": ["granted"]},
        IN_SERVER,
    ),
    Scene(
        "a hot name, and its user lock is not had",
        partial(taking, hot=True),
        {
            "wait_turn": ["in front, listening"],
            "wait_in_server": ["!busy"],
            "grant": ["refused", "granted"],
            "join": ["first", "granted"],
            "wait_notification": ["called"],
        },
        IN_SERVER,
    ),
    Scene(
        "a hot name, and others have it when the user lock is had",
        partial(taking, hot=True),
        {
            "wait_turn": ["in front, listening"],
            "grant": ["refused", "granted"],
            "look": ["held", "free"],
            "join": ["granted"],
            "wait_notification": ["called"],
        },
        IN_SERVER,
    ),
    # --- where replies are lost --------------------------------------------------------------
    Scene("the reply is lost, and it was granted", taking, {"grant": [LOST], "look": ["mine"]}),
    Scene(
        "the reply is lost, and it was not granted",
        taking,
        {"grant": [LOST, "granted"], "look": ["free"]},
    ),
    Scene(
        "the reply is lost, and it was granted to another",
        partial(taking, wait=0),
        {"grant": [LOST], "look": ["held"]},
    ),
    Scene(
        "the reply is lost, and its session goes on",
        partial(taking, wait=0),
        {"grant": [LOST], "look": ["held", "held"], "end_session": ["there", "gone"]},
    ),
    Scene(
        "the reply is lost, and its session cannot be ended",
        partial(taking, wait=0),
        {"grant": [f"{LOST} for good", "granted"], "look": ["free"]},
    ),
    Scene(
        "the reply is lost, and nobody answers any more",
        partial(taking, wait=0),
        {"grant": [LOST], "end_session": ["!unreachable"] * 500},
    ),
    Scene("the reply comes too late", partial(taking, wait=0), {"grant": ["granted late"]}),
    Scene("away for a moment", taking, {"grant": ["!unreachable", "!unreachable", "granted"]}),
    Scene("away", partial(taking, wait=0.2), {"grant": ["!unreachable"] * 500}),
    Scene(
        "its row is busy",
        partial(taking, wait=1.0),
        {"grant": ["!busy", "granted"], "look": ["free"], "join": ["granted"]},
    ),
    Scene(
        "given up by the server",
        partial(taking, wait=0),
        {"grant": ["!canceled"], "look": ["free"]},
    ),
    # --- after a crash -----------------------------------------------------------------------
    Scene(
        "the witness is missing",
        taking,
        {
            "join": ["turn"],
            "take": ["refused", "granted"],
            "look_queued": ["turn"],
            "read_witness": ["missing", "there"],
        },
        QUEUES,
    ),
    Scene(
        "the witness is missing, and so is the row",
        taking,
        {
            "grant": ["refused", "granted"],
            "join": ["nothing"],
            "look_queued": ["nothing"],
            "read_witness": ["missing", "there"],
        },
        QUEUES,
    ),
    Scene(
        "the witness is missing, and nobody waits for it",
        partial(taking, wait=0),
        {"grant": ["refused", "granted"], "look": ["free"], "read_witness": ["missing", "there"]},
        QUEUES,
    ),
    Scene(
        "in a pause",
        partial(taking, wait=3.0),
        {
            "look": ["free"],
            "read_witness": ["pause", "pause"],
            "join": ["turn"],
            "take": ["refused", "granted"],
            "look_queued": ["turn", "turn"],
        },
        QUEUES,
    ),
    # --- given back, renewed, proved ---------------------------------------------------------
    Scene("given back", releasing),
    Scene("given back with its user lock", partial(releasing, with_user_lock=True), {}, IN_SERVER),
    Scene("passed on", releasing, {"release": ["none"]}, QUEUES),
    Scene(
        "passed on by one who had waited for it",
        partial(releasing, held=HELD._replace(contended=True)),
        {},
        QUEUES,
    ),
    Scene(
        "given back when a transaction is guarded with it",
        partial(releasing, guarded=True),
        {"release": ["none"]},
        QUEUES,
    ),
    Scene(
        "passed on, and the reply is lost",
        releasing,
        {"release": ["none"], "pass_on": [LOST, "none"], "look": ["followed"]},
        QUEUES,
    ),
    Scene(
        "given back, and the reply is lost",
        releasing,
        {"release": [LOST, "none"], "pass_on": ["none"], "look": ["free"]},
    ),
    Scene(
        "given back, and it is another's",
        releasing,
        {"release": ["none"], "pass_on": ["none"], "look": ["followed"]},
    ),
    Scene(
        "given back, its row being busy",
        releasing,
        {"release": ["none"], "pass_on": ["none"], "look": ["mine"]},
    ),
    Scene("renewed", renewing_it),
    Scene("renewed, and the reply is lost", renewing_it, {"renew": [LOST]}),
    Scene("renewed, and it is another's", renewing_it, {"renew": ["none"], "look": ["followed"]}),
    Scene("proved", guarding, {"look": ["mine"]}),
    Scene("proved, and it is another's", guarding, {"guard": ["none"], "look": ["followed"]}),
    Scene("proved, and its row is busy", guarding, {"guard": ["!busy"], "look": ["mine"]}),
    # --- a hold that goes on elsewhere -------------------------------------------------------
    Scene("attached", attaching),
    Scene("attached, and heard of when it is over", attaching, {"attach": ["attached late"]}),
    Scene(
        "attached, and the reply is lost",
        attaching,
        {"attach": [LOST], "look": ["mine"]},
    ),
    Scene(
        "attached, the reply is lost, and it is over when that is found",
        attaching,
        {"attach": [LOST], "look": ["mine", "followed"], "renew": ["none"]},
    ),
    Scene(
        "attached, the reply is lost, and nobody can tell whether it is everywhere",
        attaching,
        {"attach": [LOST], "look": ["mine"], "renew": ["!unreachable"] * 500},
    ),
    Scene(
        "not attached, and the reply is lost",
        attaching,
        {"attach": [LOST], "look": ["detached"]},
    ),
    Scene(
        "attached, the reply is lost, and its session cannot be ended",
        attaching,
        {
            "attach": [LOST, *["!unreachable"] * 500],
            "end_session": ["!privilege"],
            "look": ["detached"] * 500,
        },
    ),
    Scene(
        "attached, the reply is lost, and nobody can be asked",
        attaching,
        {"attach": [LOST], "end_session": ["!unreachable"] * 500},
    ),
    Scene("attached by another", attaching, {"attach": ["none"], "look": ["attached"]}),
    Scene(
        "attached by another, and run out", attaching, {"attach": ["none"], "look": ["abandoned"]}
    ),
    Scene(
        "attached by another, and released", attaching, {"attach": ["none"], "look": ["released"]}
    ),
    Scene("attached when it has run out", attaching, {"attach": ["none"], "look": ["run out"]}),
    Scene(
        "attached when others had it since", attaching, {"attach": ["none"], "look": ["followed"]}
    ),
    Scene("attached when the name is gone", attaching, {"attach": ["none"], "look": ["none"]}),
    Scene(
        "attached when a guard has ended",
        attaching,
        {"attach": ["none", "!busy", "attached"], "look": ["detached"] * 2},
    ),
    Scene(
        "guarded for longer than is waited for that",
        attaching,
        {"attach": ["!busy"] * 500, "look": ["detached"] * 500},
    ),
    Scene("attached, and it may not be", attaching, {"attach": ["!privilege"]}),
    Scene(
        "attached, away",
        attaching,
        {"attach": ["!unreachable"] * 500, "look": ["!unreachable"] * 500},
    ),
    Scene(
        "attached, and the witness is missing",
        attaching,
        {"attach": ["none", "attached"], "look": ["detached"], "read_witness": ["missing"]},
        QUEUES,
    ),
    # --- many readers ------------------------------------------------------------------------
    Scene("free, to share", sharing, {"look": ["free"], "grant": ["granted"]}),
    Scene("readers have it", sharing, {"look": ["shared"]}),
    Scene(
        "readers have it, and a writer waits before one who does not",
        partial(sharing, wait=0),
        {"look": ["shared"] * 9, "join_readers": ["none"] * 2},
    ),
    Scene(
        "readers have it, and a writer waits until it gives up",
        sharing,
        {
            "look": ["shared"] * 9,
            "join_readers": ["none"] * 3 + ["joined"],
            "join": ["second, shared"],
            "take": ["refused"],
            "look_queued": ["out, shared", "first, shared"],
            "wait_notification": ["called"],
        },
    ),
    Scene(
        "readers had it, and have gone",
        sharing,
        {"look": ["shared", "free"], "join_readers": ["none"], "grant": ["granted"]},
    ),
    Scene(
        "readers have it, whose row is busy for a moment",
        sharing,
        {"look": ["shared"], "join_readers": ["!busy", "joined"]},
    ),
    Scene(
        "a writer has it, until it is passed on to a reader",
        sharing,
        {"wait_notification": ["passed on"]},
        QUEUES,
    ),
    Scene(
        "the reply to who joined readers is lost",
        sharing,
        {"look": ["shared", "joined"], "join_readers": [LOST]},
    ),
    Scene(
        "the reply to who did not join readers is lost",
        sharing,
        {"look": ["shared", "shared"], "join_readers": [LOST, "joined"]},
    ),
    Scene(
        "readers whose hold is over when one is told that it has joined",
        partial(sharing, wait=0),
        {"look": ["shared", "free"], "join_readers": ["joined late"]},
    ),
    Scene("shared, and released", leaving),
    Scene(
        "shared, and an earlier try has released it",
        leaving,
        {"leave_readers": ["none"], "look": ["shared"]},
    ),
    Scene("shared, and lost", leaving, {"leave_readers": ["none"], "look": ["followed"]}),
    Scene(
        "shared, and the reply to the release is lost",
        leaving,
        {"leave_readers": [LOST, "none"], "look": ["shared"]},
    ),
    # --- a row lock of dblock's own ----------------------------------------------------------
    Scene("a row", locking),
    Scene("a row that is not there", locking, {"lock_row": ["none", "locked"], "look": ["none"]}),
    Scene(
        "a row under a lease, and nobody waits for it",
        partial(locking, wait=0),
        {"lock_row": ["none"], "create": ["there"]},
    ),
    Scene(
        "a row under a lease, until that is released",
        locking,
        {
            "lock_row": ["none", "locked"],
            "create": ["there"],
            "look": ["held", "held", "free"],
        },
    ),
    Scene(
        "a row under a lease for longer than it is waited for",
        partial(locking, wait=0.2),
        {"lock_row": ["none"] * 500, "create": ["there"] * 500},
    ),
    Scene(
        "a row that is busy for a moment",
        partial(locking, wait=5.0),
        {"lock_row": ["!busy", "locked"], "look": ["free"] * 9},
    ),
    Scene(
        "a row that is busy for longer than it is waited for",
        partial(locking, wait=0.2),
        {"lock_row": ["!busy"] * 500, "look": ["free"] * 500},
    ),
    Scene("a row, and its connection is lost", locking, {"lock_row": [LOST, LOST, "locked"]}),
    Scene("a row, away", partial(locking, wait=0.2), {"lock_row": ["!unreachable"] * 500}),
    Scene(
        "a row, and the witness is missing",
        locking,
        {"lock_row": ["closed", "locked"], "read_witness": ["missing", "there"]},
        QUEUES,
    ),
    # --- and in the user's transaction -------------------------------------------------------
    Scene("the user's row", users, {"look": ["free"]}),
    Scene("the user's row that is not there", users, {"look": ["none"]}),
    Scene(
        "the user's row under a lease, until that is released",
        users,
        {"lock_row": ["none", "none", "locked"], "look": ["held", "held", "free"]},
        QUEUES,
    ),
    Scene(
        "the user's row under a lease, until that is released",
        users,
        {"look": ["held", "held", "free"]},
        LOOKS_FIRST,
    ),
    Scene(
        "the user's row, leased while it was tried",
        users,
        {
            "lock_row": ["none", "locked"],
            "create": ["there"],
            "look": ["free", "held", "free"],
        },
    ),
    Scene(
        "the user's row, newer than the snapshot",
        users,
        {"lock_row": ["none", "stale"], "look": ["free"] * 2},
        QUEUES,
    ),
    Scene(
        "the user's row that is busy, and nobody waits for it",
        partial(users, wait=0),
        {"lock_row": ["!busy"] * 2, "look": ["free"] * 9},
    ),
    Scene(
        "the user's row, and the connection is lost",
        users,
        {"lock_row": [LOST], "look": ["free"]},
    ),
    Scene(
        "the user's row, and the server broke a deadlock",
        users,
        {"lock_row": ["!deadlock"], "look": ["free"]},
    ),
    # --- a rate limit ------------------------------------------------------------------------
    Scene("a place", limiting),
    Scene("no place", limiting, {"take_place": ["refused"]}),
    Scene(
        "a place that is due later",
        partial(limiting, wait=5.0),
        {"take_place": ["taken, for later"]},
    ),
    Scene("a place, taken by another at the same time", limiting, {"take_place": ["nothing"]}),
    Scene(
        "a place that another has taken meanwhile",
        limiting,
        {"take_place": ["taken meanwhile", "refused"]},
    ),
    Scene("a place whose reply is lost", limiting, {"take_place": [LOST]}),
    Scene(
        "a place whose reply is lost, and the server cannot write any more",
        limiting,
        {"take_place": [LOST, "!refused"]},
    ),
    Scene("a busy row of a rate limit", limiting, {"take_place": ["!busy", "!deadlock"]}),
    Scene("a rate limit's name is a semaphore's", limiting, {"take_place": ["a semaphore's"]}),
    *RECORD_SCENES,
]


def page(kind: str) -> str:
    def paragraphs() -> Iterator[str]:
        for scene in SCENES:
            if kind in scene.kinds:
                stage = Stage(kind, scene.script)
                lines = stage.play(scene.make(stage))
                yield "\n".join([f"# {scene.title}", *lines, ""])

    return "\n".join(paragraphs())


def pages() -> dict[Path, str]:
    return {PAGES / f"{kind}.txt": page(kind) for kind in EVERY}


@pytest.mark.parametrize("kind", EVERY)
def test_what_is_asked_for(kind: str) -> None:
    file, found = PAGES / f"{kind}.txt", page(kind)
    assert found.splitlines() == file.read_text().splitlines(), "see python -m tests.golden traces"


@pytest.mark.parametrize("kind", EVERY)
def test_the_titles_differ(kind: str) -> None:
    titles = [scene.title for scene in SCENES if kind in scene.kinds]
    assert len(set(titles)) == len(titles)
