"""One statement at a member stalls, while later ones there are quick. An attack has found these."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from dblock import Lease, LockLost, Locks, Quorum, SocketTimeout, Timeouts, Unavailable
from dblock.aio import AsyncQuorum
from dblock.protocol.lease import Refused
from dblock.quorum.attempt import QuorumAttempt
from dblock.quorum.members import Members
from tests.patience import SECONDS
from tests.quorum.conftest import (
    LONG,
    PATIENT,
    answer_last,
    attempt_of,
    away,
    held_at,
    name_of,
    raise_fence,
    use_once,
)
from tests.support import Threads, eventually

#: A member that is silent for a second is a suspect.
QUICK = Timeouts(connect=1, query=5, socket=10)


@pytest.fixture
def quorum(files: list[str]) -> Iterator[Quorum]:
    with Quorum(files, timeouts=QUICK) as quorum:
        use_once(quorum)
        yield quorum


@contextmanager
def stalled(members: Members, number: int, kind: str, *, fails: bool) -> Iterator[threading.Event]:
    """Let a member's first statement of a kind end with the block; the event says that it came."""
    database, came, over = members.databases[number], threading.Event(), threading.Event()
    run = database.run

    def late(procedure: Any, *args: Any, **named: Any) -> Any:
        if procedure.gi_code.co_name != kind or came.is_set():
            return run(procedure, *args, **named)
        came.set()
        while not over.is_set():
            database.runtime.sleep(0.01)
        if fails:
            procedure.close()
            raise SocketTimeout("this connection has stalled")
        return run(procedure, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "run", late)
        try:
            yield came
        finally:
            over.set()


def hand_over(locks: Locks, lease: Lease, came: threading.Event) -> None:
    """Release a lease to its waiter, and let the waiter come to the statement that stalls."""
    eventually(lambda: bool(locks.show(lease.name).waiters))
    lease.release()
    assert came.wait(SECONDS)


def test_a_member_whose_stamp_stalls_is_not_asked_for_a_vote(
    files: list[str], quorum: Quorum, others: Quorum, threads: Threads
) -> None:
    """The vote found the token that the stamp's failure then gave back: there were two holders."""
    name = name_of(quorum._members, 0)
    raise_fence(files[0], name)  # so the vote of the third has to be stamped
    with Locks(files[0]) as first, Locks(files[1]) as second, ExitStack() as stack:
        at_first = first.lease(name, ttl=LONG, wait=SECONDS)
        assert at_first.acquire()
        stack.enter_context(second.lease(name, ttl=LONG, wait=SECONDS))
        lease = quorum.lease(name, ttl=6.0, wait=6.0)
        with stalled(quorum._members, 2, "stamp", fails=True) as came:
            taking = threads.start(lease.acquire)
            hand_over(first, at_first, came)
            assert not taking.result(SECONDS)
    quorum._members.rest()
    with others.lease(name, ttl=LONG, wait=SECONDS):
        assert not lease.held


def test_the_same_in_tasks(files: list[str], others: Quorum) -> None:
    async def main() -> None:
        async with AsyncQuorum(files, timeouts=QUICK) as quorum:
            async with quorum.lease("before", ttl=LONG, wait=SECONDS):
                pass
            members = quorum.sync._members
            name = name_of(members, 0)
            await asyncio.to_thread(raise_fence, files[0], name)
            with Locks(files[0]) as first, Locks(files[1]) as second:
                at_first = first.lease(name, ttl=LONG, wait=SECONDS)
                at_second = second.lease(name, ttl=LONG, wait=SECONDS)
                for lease in (at_first, at_second):
                    assert await asyncio.to_thread(lease.acquire)
                with stalled(members, 2, "stamp", fails=True) as came:
                    taking = asyncio.create_task(quorum.lease(name, ttl=6.0, wait=6.0).acquire())
                    await asyncio.to_thread(hand_over, first, at_first, came)
                    assert not await taking
                await asyncio.to_thread(at_second.release)
            assert await asyncio.to_thread(others.lease(name, ttl=LONG, wait=SECONDS).acquire)

    asyncio.run(main())


def test_a_queues_grant_is_proven_by_its_stamp_alone(
    files: list[str], quorum: Quorum, others: Quorum, threads: Threads
) -> None:
    """The queue's member pauses, so its grant is no vote. A second vote found the token there, and
    counted: two holders had one fence."""
    name = name_of(quorum._members, 0)
    for url in files[:2]:
        raise_fence(url, name)
    with Locks(files[0]) as first, Locks(files[1]) as second, ExitStack() as stack:
        # Another holds the name by the second and the first, which has forgotten it, and pauses.
        stack.enter_context(second.lease(name, ttl=LONG, wait=SECONDS))
        at_first = first.lease(name, ttl=LONG, wait=SECONDS)
        assert at_first.acquire()
        assert others.rejoin(0) == pytest.approx(LONG)
        lease = quorum.lease(name, ttl=6.0, wait=6.0)
        with stalled(quorum._members, 0, "stamp", fails=False) as came:
            taking = threads.start(lease.acquire)
            hand_over(first, at_first, came)
            assert not taking.result(SECONDS)
        quorum._members.rest()
        assert not lease.held


def test_a_stamp_whose_reply_nobody_has_read_is_given_back(
    files: list[str], quorum: Quorum
) -> None:
    """It came just before the end of the attempt, which did not count on the member any more."""
    members = quorum._members
    attempt = attempt_of(quorum)
    attempt.decide()
    eventually(lambda: not attempt.busy)
    attempt.decide()  # it reads the third vote
    assert sorted(attempt.ballot.grants) == [0, 1, 2]
    attempt.ballot.failed(2, None)
    attempt._mailbox.put(2, 7)
    attempt.abandon()
    members.rest()
    assert held_at(files) == 0


# --- releases ------------------------------------------------------------------------------------


def test_a_vote_that_was_given_back_is_no_release(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as one, and hid that another holder had the name."""
    for url in files[:2]:
        raise_fence(url, "report")
    with pytest.MonkeyPatch.context() as patch, Quorum(files, timeouts=PATIENT) as quorum:
        answer_last(patch, 2)
        patch.setattr(QuorumAttempt, "_stamped", lambda *_: Refused(None))
        lease = quorum.lease("report", ttl=LONG, wait=0)
        assert lease.acquire()
        hold: Any = lease._holds.last
        eventually(lambda: 2 in hold.attempt._released)
        patch.undo()
        with Locks(files[1]) as second:
            assert second.release("report", force=True)
            with second.lease("report", ttl=LONG, wait=SECONDS):
                end, ended = quorum._members.databases[0].run, threading.Event()

                def first(*args: Any, **named: Any) -> Any:
                    try:
                        return end(*args, **named)
                    finally:
                        ended.set()

                def last(*args: Any, **named: Any) -> Any:
                    ended.wait(SECONDS)
                    return end_last(*args, **named)

                end_last = quorum._members.databases[1].run
                monkeypatch.setattr(quorum._members.databases[0], "run", first)
                monkeypatch.setattr(quorum._members.databases[1], "run", last)
                with pytest.raises(LockLost):
                    lease.release()


def test_a_release_that_executed_nothing_hides_no_loss(files: list[str], quorum: Quorum) -> None:
    """The second release took the first for the cause of the loss."""
    lease = quorum.lease("report", ttl=LONG, renew=False, wait=SECONDS)
    assert lease.acquire()
    eventually(lambda: held_at(files) == 3)
    with pytest.MonkeyPatch.context() as patch:
        for database in quorum._members.databases:
            patch.setattr(database, "run", away)
        with pytest.raises(Unavailable):
            lease.release()
    with ExitStack() as stack:
        for url in files:
            locks = stack.enter_context(Locks(url))
            locks.release("report", force=True)
            stack.enter_context(locks.lease("report", ttl=LONG, wait=SECONDS))
        with pytest.raises(LockLost):
            lease.release()


def test_members_that_are_back_are_asked_to_release(files: list[str], others: Quorum) -> None:
    """No release waited for a suspect, and none cleared a suspicion."""
    lease = others.lease("report", ttl=LONG, wait=SECONDS)
    assert lease.acquire()
    eventually(lambda: held_at(files) == 3)
    suspects = others._members.suspects
    suspects |= {0, 1, 2}
    lease.release()
    eventually(lambda: not suspects)
    assert held_at(files) == 0
