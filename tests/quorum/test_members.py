"""Members that are killed, stopped, restarted and restored."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest
from sqlalchemy import make_url

from dblock import LockLost, Locks, Quorum, Unavailable
from dblock.quorum.lease import QuorumHold
from tests.patience import SECONDS
from tests.quorum.conftest import PATIENT, TIMES, answer_last, held_at
from tests.servers import PostgreSQL
from tests.support import eventually

TTL = 60.0
#: Short, because a member that was started again pauses for the longest TTL.
SHORT = 3.0


@pytest.fixture
def quorum(servers: list[PostgreSQL]) -> Iterator[Quorum]:
    with Quorum([server.url for server in servers], timeouts=TIMES) as quorum:
        yield quorum


def states(quorum: Quorum) -> list[str]:
    return [status.state for status in quorum.check()]


def test_members_die_hang_and_come_back(quorum: Quorum, servers: list[PostgreSQL]) -> None:
    """The whole life of one quorum: each part needs the state that the last one has left."""
    fences: list[int] = []

    def hold(ttl: float = SHORT) -> None:
        with quorum.lease("report", ttl=ttl, wait=SECONDS) as lease:
            lease.check()
            fences.append(lease.fence)

    hold()
    # One is dead.
    servers[0].kill()
    hold()
    assert sorted(states(quorum)) == ["away", "votes", "votes"]
    # A hold goes on while one of its members is away, and is renewed.
    with quorum.lease("report", ttl=SHORT, wait=SECONDS) as lease:
        fences.append(lease.fence)
        first = lease._holds.get().lease.term
        eventually(lambda: lease._holds.get().lease.term.start > first.deadline)
        lease.check()
    # Two are dead: nothing is granted, and a hold is lost.
    lease = quorum.lease("report", ttl=SHORT, wait=SECONDS)
    assert lease.acquire()
    fences.append(lease.fence)
    servers[1].kill()
    assert lease.lost.wait(SECONDS)
    with pytest.raises(LockLost):
        lease.release()
    with pytest.raises(Unavailable):
        quorum.lease("report", wait=0).acquire()
    # They come back, pause for the longest TTL, and vote again.
    for server in servers[:2]:
        server.start()
    eventually(
        lambda: quorum.lease("report", wait=0).acquire() is True if _tries(quorum) else False
    )
    quorum.release("report", force=True)
    hold()
    eventually(lambda: _tries(quorum) and states(quorum) == ["votes"] * 3)
    # One is frozen. That costs `connect` once, and no renewal waits for it.
    servers[2].pause()
    try:
        hold()
        start = time.monotonic()
        for _ in range(3):
            hold()
        assert time.monotonic() - start < 3 * TIMES.connect
        with quorum.lease("report", ttl=SHORT, wait=SECONDS) as lease:
            fences.append(lease.fence)
            first = lease._holds.get().lease.term
            eventually(lambda: lease._holds.get().lease.term.start > first.deadline)
    finally:
        servers[2].resume()
    hold()
    assert fences == sorted(set(fences))


def test_a_cold_copy_pauses_and_joins_above_the_others_fences(servers: list[PostgreSQL]) -> None:
    """Nobody calls anything: PostgreSQL shows the start of the server."""
    old = servers[0]
    quorum = Quorum([server.url for server in servers], timeouts=PATIENT)

    def votes() -> bool:
        return _tries(quorum) and states(quorum) == ["votes"] * 3

    def hold(name: str) -> int:
        with quorum.lease(name, ttl=SHORT, wait=SECONDS) as lease:
            return lease.fence

    hold("report")
    old.stop()
    copy = old.copy()
    old.start()
    eventually(votes)
    for _ in range(3):
        newest = {name: hold(name) for name in ("report", "later")}
    old.stop()
    old.restore(copy)
    start = time.monotonic()
    old.start()
    # The majority of the other two goes on; the copy grants nothing.
    with quorum, Locks(old.url) as alone:
        while states(quorum)[0] != "votes":
            before = newest["report"]
            with quorum.lease("report", ttl=SHORT, wait=SECONDS) as lease:
                newest["report"] = lease.fence
                assert lease.fence > before
                assert not alone.show("report").held or states(quorum)[0] == "votes"
        assert time.monotonic() - start >= SHORT
        assert alone.show("report").fence >= before
        # It has never heard of the second name.
        with alone.lease("later", wait=SECONDS) as lone:
            assert lone.fence > newest["later"]
        assert hold("later") > newest["later"]


def _tries(quorum: Quorum) -> bool:
    """Whether a majority can be taken; a try lets members vote that may."""
    try:
        with quorum.lease("sales", ttl=SHORT, wait=0):
            return True
    except (Unavailable, TimeoutError, LockLost):
        return False


def test_a_restored_file_joins_above_the_others_fences(files: list[str]) -> None:
    with Quorum(files, timeouts=TIMES) as quorum:
        with quorum.lease("report", ttl=SHORT, wait=0):
            eventually(lambda: held_at(files) == 3)  # the copy has the name too
        copy = _copy(files[0])
        for _ in range(3):
            with quorum.lease("report", ttl=SHORT, wait=SECONDS) as lease:
                newest = lease.fence
    _restore(files[0], copy)
    with Quorum(files, timeouts=TIMES) as quorum:
        assert quorum.rejoin(files[0]) == pytest.approx(SHORT)
        assert states(quorum) == ["pauses", "votes", "votes"]
        with quorum.lease("report", ttl=SHORT, wait=0) as lease:
            assert lease.fence > newest
            newest = lease.fence
        eventually(lambda: _tries(quorum) and states(quorum) == ["votes"] * 3)
        with Locks(files[0]) as restored:
            assert restored.show("report").fence >= newest
        with pytest.raises(ValueError, match="no member"):
            quorum.rejoin("sqlite:////nowhere.db")


def test_a_member_that_always_answers_last_joins_too(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusals come after the verdict of the others, so no attempt reads them."""

    def hold(quorum: Quorum) -> None:
        with quorum.lease("report", ttl=SHORT, wait=SECONDS):
            pass

    with Quorum(files, timeouts=TIMES) as quorum, Quorum(files, timeouts=TIMES) as other:
        hold(other)
        quorum.rejoin(0)
        answer_last(monkeypatch, 0)

        def joins() -> bool:
            hold(other)
            return states(other) == ["votes"] * 3

        eventually(joins)


def test_a_silent_member_is_not_waited_for_again_before_it_answers(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that ends without a reply is no answer."""
    over = threading.Event()

    def hang(procedure: object) -> NoReturn:
        over.wait(SECONDS)
        raise Unavailable("no reply")

    with Quorum(files, timeouts=TIMES) as quorum:
        lease = quorum.lease("report", ttl=TTL, wait=0)
        with lease:
            pass
        members = quorum._members
        monkeypatch.setattr(members.databases[2], "run", hang)
        members.records.settle(TTL)  # waits once
        assert members.suspects == {2}
        with lease:
            hold = lease._holds.get()
            assert isinstance(hold, QuorumHold)
            over.set()
            eventually(lambda: not hold.attempt.busy)
            assert members.suspects == {2}


def test_a_longer_ttl_waits_for_no_silent_member_again(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that has nothing to record about the TTL has not answered by that."""
    over, answered = threading.Event(), []

    def hang(procedure: object) -> NoReturn:
        over.wait(SECONDS)
        raise Unavailable("no reply")

    with Quorum(files, timeouts=TIMES) as quorum:
        with quorum.lease("report", ttl=TTL, wait=0):
            pass
        members = quorum._members
        monkeypatch.setattr(members.databases[2], "run", hang)
        members.records.settle(TTL)  # waits once
        assert members.suspects == {2}
        heard = members.heard

        def counted(number: int, outcome: object) -> None:
            answered.append(number)
            heard(number, outcome)

        monkeypatch.setattr(members, "heard", counted)
        members.records.settle(2 * TTL)
        assert members.records.longest == 2 * TTL
        assert set(answered) == {0, 1}
        over.set()


def _copy(url: str) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:")
    with sqlite3.connect(str(make_url(url).database)) as source:
        source.backup(copy)
    source.close()
    return copy


def _restore(url: str, copy: sqlite3.Connection) -> None:
    with sqlite3.connect(str(make_url(url).database)) as target:
        copy.backup(target)
    target.close()
