"""Bugs of the quorum that were found in a review, each with the schedule that shows it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest
from tenacity import stop_after_delay, wait_fixed

from dblock import DeadlockDetected, LockLost, Locks, Quorum, RetryPolicy, Unavailable
from dblock.aio import AsyncQuorum
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Refused
from dblock.protocol.renew import Asked, RenewalFailed
from dblock.protocol.state import Renewal
from dblock.protocol.term import Term
from dblock.quorum.attempt import QuorumAttempt
from dblock.quorum.members import Members
from tests.patience import SECONDS
from tests.quorum.conftest import LONG, PATIENT, TIMES, answer_last, attempt_of, held_at, writer
from tests.support import Threads, eventually


@pytest.fixture
def quorum(files: list[str]) -> Iterator[Quorum]:
    with Quorum(files, timeouts=TIMES) as quorum:
        with quorum.lease("report", ttl=LONG, wait=0):
            pass
        quorum._members.rest()
        yield quorum


@contextmanager
def slow(members: Members, number: int) -> Iterator[list[object]]:
    """Let a member begin no work before the end of the block; yield the work that waits."""
    database, over = members.databases[number], threading.Event()
    run, waiting = database.run, list[object]()

    def late(procedure: Any, *args: Any, **named: Any) -> Any:
        waiting.append(procedure)
        over.wait(SECONDS)
        return run(procedure, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "run", late)
        try:
            yield waiting
        finally:
            over.set()
            members.rest()


def test_a_member_that_has_not_answered_is_not_asked_for_a_second_vote(quorum: Quorum) -> None:
    """The refusal of a second vote gave back the grant of the first."""
    members = quorum._members
    with Locks(members.databases[1].engine) as locks, locks.lease("report", ttl=LONG, wait=0):
        attempt = attempt_of(quorum)
        with slow(members, 2) as waiting:
            members.suspects.add(2)
            attempt.decide()
            eventually(lambda: len(waiting) == 1)
            for _ in range(3):
                attempt.decide()
            assert len(waiting) == 1
        eventually(lambda: not attempt.busy)
        attempt.decide()
        assert len(waiting) == 1
        assert sorted(attempt.ballot.grants) == [0, 2]
        attempt.abandon()


def test_a_policy_that_ends_ends_the_wait(files: list[str], quorum: Quorum) -> None:
    slept: list[int] = []
    few = RetryPolicy(
        stop=lambda state: state.attempt_number >= 2,
        before_sleep=lambda attempt: slept.append(attempt.number),
    )
    waiting = quorum.lease("report", retry=few)
    with Quorum(files, timeouts=TIMES) as other, other.lease("report", ttl=LONG, wait=0):
        assert not waiting.acquire()
    assert slept == [1]


def test_a_policy_that_ends_ends_the_wait_of_a_free_queue(files: list[str], quorum: Quorum) -> None:
    """The first member's queue granted the name each time, and the others refused it."""
    slept: list[int] = []
    few = RetryPolicy(
        stop=lambda state: state.attempt_number >= 3,
        before_sleep=lambda attempt: slept.append(attempt.number),
    )
    _, *others = quorum._members.order("report")
    with ExitStack() as stack:
        for number in others:
            alone = stack.enter_context(Locks(files[number]))
            stack.enter_context(alone.lease("report", ttl=LONG, wait=SECONDS))
        assert not quorum.lease("report", ttl=3.0, retry=few).acquire()
    assert slept == [1, 2]


def test_a_member_that_cannot_write_its_record_is_told(files: list[str], quorum: Quorum) -> None:
    """It does not vote, so its refusals looked like those of a name that another has."""
    for url in files[:2]:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other, other:
            other.execute(
                "CREATE TRIGGER full BEFORE UPDATE ON dblock_value "
                "BEGIN SELECT RAISE(ABORT, 'no room'); END"
            )
    with pytest.raises(Unavailable, match="no room"), quorum.lease("report", ttl=2 * LONG, wait=0):
        pass


def asked(hold: Any, ttl: float) -> Asked:
    return Asked(Renewal("report", hold.token, ttl), hold.lease)


def test_a_renewal_that_fails_clears_no_suspicion(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failures of a renewal are its outcome, and not an error."""
    members, away = quorum._members, StatementError(Fault.UNREACHABLE, "away")
    heard = members.heard
    done = threading.Event()

    def noted(number: int, outcome: object) -> None:
        heard(number, outcome)
        if number == 2:
            done.set()

    with quorum.lease("report", ttl=LONG, renew=False, wait=0) as lease:
        hold = lease._holds.get()
        eventually(lambda: not hold.attempt.busy)  # type: ignore[attr-defined]
        failed = ([RenewalFailed(away)], 0.0)
        monkeypatch.setattr(members.databases[2], "run", lambda procedure: failed)
        monkeypatch.setattr(members, "heard", noted)
        members.suspects.add(2)
        members.renew_all([asked(hold, LONG)], SECONDS)
        assert done.wait(SECONDS)
        assert 2 in members.suspects
        monkeypatch.undo()


def test_a_shorter_renewal_that_is_late_does_not_cut_a_longer_one(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member executes the late one after it has confirmed the longer one."""
    members = quorum._members
    with quorum.lease("report", ttl=LONG, renew=False, wait=0) as lease:
        hold = lease._holds.get()
        eventually(lambda: not hold.attempt.busy)  # type: ignore[attr-defined]
        with slow(members, 2):
            (first,) = members.renew_all([asked(hold, LONG)], SECONDS)
            assert isinstance(first, Term)
        with slow(members, 2):
            (first,) = members.renew_all([asked(hold, LONG)], SECONDS)
            assert isinstance(first, Term)
            monkeypatch.setattr(members.databases[0], "run", _away)
            # Only the member that may have the late one could make this a majority.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(members.databases[2], "run", members.databases[1].run)
                (longer,) = members.renew_all([asked(hold, 2 * LONG)], 1.0)
            assert isinstance(longer, RenewalFailed)
            monkeypatch.undo()
        (longer,) = members.renew_all([asked(hold, 2 * LONG)], SECONDS)
        assert isinstance(longer, Term)


def _away(procedure: object) -> Any:
    raise Unavailable("away")


def test_a_leader_keeps_its_value_where_the_fences_were_raised(
    files: list[str], quorum: Quorum
) -> None:
    """As by a member that votes again. The value was looked for by the fence."""
    with Quorum(files, timeouts=TIMES) as other:
        term = quorum.election("main", ttl=LONG).campaign(wait=0)
        term.proclaim("first")
        term.proclaim("second")
        quorum._members.rest()
        with closing(sqlite3.connect(files[2].removeprefix("sqlite:///"))) as raised, raised:
            raised.execute("UPDATE dblock_lock SET fence = 1000")
        for away in (None, 0, 1):
            with pytest.MonkeyPatch.context() as patch:
                if away is not None:
                    patch.setattr(other._members.databases[away], "run", _away)
                leader = other.election("main").leader()
            assert leader is not None
            assert (leader.fence, leader.value) == (term.fence, "second")
        term.resign()


def test_a_silent_member_that_is_back_is_checked_and_rejoined(quorum: Quorum) -> None:
    """Once a majority has answered, nothing else waits for a member that was silent."""
    members = quorum._members
    with pytest.MonkeyPatch.context() as patch:
        run, late = members.databases[2].run, threading.Event()

        def after_the_others(*args: Any, **named: Any) -> Any:
            late.wait(0.2)
            return run(*args, **named)

        patch.setattr(members.databases[2], "run", after_the_others)
        members.suspects.add(2)
        assert [status.state for status in quorum.check()] == ["votes"] * 3
        members.suspects.add(2)
        assert quorum.rejoin(2) == pytest.approx(LONG)


def test_the_end_waits_for_the_release_at_each_member_in_tasks(files: list[str]) -> None:
    async def main() -> None:
        quorum = AsyncQuorum(files, timeouts=PATIENT)
        lease = quorum.lease("report", ttl=LONG, wait=SECONDS)
        assert await lease.acquire()
        await asyncio.to_thread(eventually, lambda: held_at(files) == 3)
        with Locks(files[2]) as locks, closing(writer(files[2])) as other:
            await lease.release()
            assert await asyncio.to_thread(lambda: locks.show("report").held)
            asyncio.get_running_loop().call_later(1.0, other.rollback)
            await quorum.close()
            assert not locks.show("report").held

    asyncio.run(main())


def test_a_vote_that_is_given_back_late_counts_for_the_release(
    files: list[str], threads: Threads
) -> None:
    """The lease was held at the first and the third; the second has its vote at last, and the third
    is silent. No majority has the name any more."""
    with Quorum(files, timeouts=PATIENT) as quorum:
        with quorum.lease("other", ttl=LONG, wait=SECONDS):
            pass
        eventually(lambda: held_at(files, "other") == 0)
        with closing(writer(files[1])) as second:
            lease = quorum.lease("report", ttl=LONG, wait=SECONDS)
            assert lease.acquire()
            eventually(lambda: held_at(files) == 2)
            hold: Any = lease._holds.last

            def answer() -> None:
                eventually(lambda: hold.attempt.state == "ended")
                second.rollback()

            with closing(writer(files[2])):
                quorum._members.suspects.add(2)  # no need to wait until it is one
                threads.start(answer)
                lease.release()
                threads.join()


def test_a_release_tells_a_loss_whatever_others_refused_late(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late refusal counted for the release, and hid that one of two grants was lost."""
    answer_last(monkeypatch, 2)
    with Quorum(files, timeouts=PATIENT) as quorum, Locks(files[2]) as alone, alone.lease("report"):
        lease = quorum.lease("report", ttl=LONG, wait=0)
        assert lease.acquire()
        hold: Any = lease._holds.last
        eventually(lambda: 2 in hold.attempt.ballot.refusals)
        with Locks(files[0]) as first:
            assert first.release("report", force=True)
        with pytest.raises(LockLost):
            lease.release()


def test_a_late_grant_with_too_small_a_fence_is_given_back(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader's value was written there with the larger fence that the others have."""
    answer_last(monkeypatch, 2)
    for url in files[:2]:
        with Locks(url) as locks:
            for _ in range(3):
                with locks.lease("report", wait=SECONDS):
                    pass
    monkeypatch.setattr(QuorumAttempt, "_stamped", lambda *_: Refused(None))
    quorum = Quorum(files, timeouts=PATIENT)
    with quorum, quorum.lease("report", ttl=LONG, wait=0) as lease:
        hold: Any = lease._holds.last
        eventually(lambda: 2 in hold.attempt._released)
        assert held_at(files[2:]) == 0
        assert sorted(hold.attempt.ballot.grants) == [0, 1]


@pytest.mark.parametrize(
    "retry", [None, RetryPolicy(stop=stop_after_delay(SECONDS), wait=wait_fixed(0.05))]
)
@pytest.mark.parametrize("first", range(3))
def test_a_deadlock_is_found_whose_waits_are_in_one_queue(
    files: list[str], threads: Threads, retry: RetryPolicy | None, first: int
) -> None:
    """Only a waiter at the first of the databases said what it held."""
    both = threading.Barrier(2)

    def take(quorum: Quorum, name: str, other: str) -> bool:
        with quorum.lease(name, ttl=LONG, wait=SECONDS):
            both.wait(SECONDS)
            try:
                with quorum.lease(other, ttl=LONG, wait=SECONDS, retry=retry):
                    return True
            except DeadlockDetected:
                return False

    with Quorum(files, timeouts=PATIENT) as quorum:
        with quorum.lease("before", ttl=LONG, wait=SECONDS):
            order = quorum._members.order  # it needs the identities of the members
        one, other, *_ = (name for name in map(str, range(99)) if order(name)[0] == first)
        taking = [threads.start(take, quorum, *names) for names in ((one, other), (other, one))]
        assert sorted(future.result(SECONDS) for future in taking) == [False, True]


def test_an_interrupted_proclamation_leaves_nothing_behind(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = quorum.election("main", ttl=LONG).campaign(wait=0)
    term.proclaim("first")
    values: Any = term._values  # type: ignore[attr-defined]

    def interrupted(*args: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(values, "_decided", interrupted)
    with suppress(KeyboardInterrupt):
        term.proclaim("second")
    assert values._mailboxes == []
    monkeypatch.undo()
    term.resign()
