"""A hold is detached in one process and attached in another; SIGKILL kills either of them."""

from __future__ import annotations

import pytest

from dblock import LockLost, Locks
from tests.conftest import Database
from tests.processes.handover import attach, detach
from tests.processes.workers import SECONDS, Process
from tests.support import eventually

LONG = 600.0
SHORT = 4.0


def test_who_detached_it_is_killed(db: Database) -> None:
    """The hold goes on, renewed by the other."""
    with Locks(db.url) as locks:
        with Process(detach, db.url, LONG) as first:
            fence, text = first.message()
            with Process(attach, db.url, text, SHORT) as second:
                assert second.message() == fence
                first.kill()
                assert not locks.lease("report", ttl=LONG).acquire(timeout=2 * SHORT)
                assert locks.show("report").fence == fence
                second.go_on()
                assert second.message() == "released"
        with locks.lease("report", ttl=LONG, wait=0) as later:
            assert later.fence == fence + 1


def test_both_are_killed_before_it_is_attached(db: Database) -> None:
    """It runs out, when who detached it has said, and cannot be attached then."""
    with Locks(db.url) as locks, Process(detach, db.url, SHORT) as first:
        fence, text = first.message()
        first.kill()
        left = locks.show("report")
        later = locks.lease("report", ttl=LONG, wait=SECONDS)
        assert later.acquire()
        assert later.fence == fence + 1
        state = locks.show("report")
        assert left.expires_at is not None
        assert state.acquired_at is not None
        assert state.acquired_at >= left.expires_at
        with pytest.raises(LockLost) as raised:
            locks.attach(text).acquire()
        assert raised.value.reason == "taken over"
        later.check()
        later.release()


def test_who_goes_on_is_killed(db: Database) -> None:
    """It runs out, and who detached it does not keep it."""
    with Locks(db.url) as locks, Process(detach, db.url, LONG) as first:
        fence, text = first.message()
        with Process(attach, db.url, text, SHORT) as second:
            assert second.message() == fence
        with pytest.raises(LockLost) as raised:
            locks.attach(text).acquire()
        assert raised.value.reason in ("attached", "taken over")
        with locks.lease("report", ttl=LONG, wait=SECONDS) as later:
            assert later.fence == fence + 1
            first.go_on()


def test_delivered_again_when_who_goes_on_was_killed(db: Database) -> None:
    """Who asks is told that it goes on there while it may, and then that nobody has the name."""
    with Locks(db.url) as locks, Process(detach, db.url, LONG) as first:
        _, text = first.message()
        with Process(attach, db.url, text, SHORT) as second:
            second.message()
            second.kill()
        told: list[str] = []

        def over() -> bool:
            held = locks.show("report").held
            with pytest.raises(LockLost) as raised:
                locks.attach(text).acquire()
            told.append(raised.value.reason)
            assert held or told[-1] == "expired"
            return told[-1] != "attached"

        eventually(over)
        assert told[-1] == "expired"
        assert not locks.show("report").held
        first.go_on()
