"""Readers of one name when replies are lost and callers interrupted: each loses its own share."""

from __future__ import annotations

import pytest

from dblock import Locks
from dblock.protocol import sharing
from dblock.protocol.attempt import Attempt
from tests.conftest import Database
from tests.faults.conftest import GRANT, RENEW, Net
from tests.faults.proxy import Lose
from tests.faults.test_round_trips import counting
from tests.patience import SECONDS

# Bytes that occur in one statement only.
JOIN, LEAVE = b"THEN readers ELSE", b"readers = REPLACE(readers"


def readers(locks: Locks) -> int | None:
    return locks.show("report").readers


@pytest.mark.parametrize("how", [Lose.REQUEST, Lose.REPLY])
def test_a_lost_reply_to_joining_is_settled(net: Net, how: Lose) -> None:
    """The list says whether it has joined, once, and a renewal proves it."""
    with net.direct.shared("report", ttl=60):
        lost = net.proxy.lose(how, JOIN)
        reader = net.locks.shared("report", ttl=60, wait=0)
        assert reader.acquire()
        assert lost.done.wait(SECONDS)
        assert (net.proxy.count(RENEW) > 0) is (how is Lose.REPLY)
        assert readers(net.direct) == 2
        reader.check()
        reader.renew()
        reader.release()
        assert readers(net.direct) == 1
    assert net.direct.list() == []


def test_a_lost_grant_is_settled_though_others_have_joined(net: Net) -> None:
    """The first reader finds its own token on the list, and goes without taking them along."""
    other = net.direct.shared("report", ttl=60, wait=0)
    lost = net.proxy.lose(Lose.REPLY, GRANT, hook=lambda: assert_true(other.acquire()))
    first = net.locks.shared("report", ttl=60, wait=0)
    assert first.acquire()
    assert lost.done.wait(SECONDS)
    assert readers(net.direct) == 2
    first.release()
    other.renew()
    assert readers(net.direct) == 1
    assert not net.direct.lease("report").acquire(blocking=False)
    other.release()
    assert net.direct.list() == []


@pytest.mark.parametrize("how", [Lose.REQUEST, Lose.REPLY])
def test_a_lost_reply_to_leaving_is_settled(net: Net, how: Lose) -> None:
    with net.direct.shared("report", ttl=60) as other:
        reader = net.locks.shared("report", ttl=60)
        assert reader.acquire()
        lost = net.proxy.lose(how, LEAVE)
        reader.release()
        assert lost.done.wait(SECONDS)
        assert readers(net.direct) == 1
        other.renew()
    assert net.direct.list() == []


def test_the_last_one_whose_leaving_was_not_told_touches_no_later_hold(net: Net) -> None:
    reader, later = net.locks.shared("report", ttl=60), net.direct.lease("report", ttl=60, wait=0)
    assert reader.acquire()
    lost = net.proxy.lose(Lose.REPLY, LEAVE, hook=lambda: assert_true(later.acquire()))
    reader.release()
    assert lost.done.wait(SECONDS)
    later.check()
    later.renew()
    later.release()


@pytest.mark.parametrize("first", [True, False])
def test_an_interrupted_try_takes_nobody_elses_share(
    db: Database, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Whether it was the first one, whom another has joined meanwhile, or it had joined others."""
    with Locks(db.url) as locks, Locks(db.url) as others:
        reader, other = locks.shared("report", ttl=60), others.shared("report", ttl=60, wait=0)
        with reader:
            pass
        if not first:
            assert other.acquire()
        with monkeypatch.context() as patch:

            def granted(*about: object) -> None:
                patch.undo()
                assert other.acquire()
                raise KeyboardInterrupt

            def joined(*about: object) -> None:
                assert others.show("report").readers in (2, None)
                patch.undo()
                raise KeyboardInterrupt

            if first:
                patch.setattr(Attempt, "_term", granted)
            else:
                patch.setattr(sharing, "Term", joined)
            with pytest.raises(KeyboardInterrupt):
                reader.acquire()
        assert readers(locks) == 1
        other.check()
        other.renew()
        assert not locks.lease("report").acquire(blocking=False)
        other.release()
        assert locks.list() == []


def test_how_many_statements_it_is(db: Database) -> None:
    """The first reader takes the name as a writer does. Whoever comes next looks, and joins."""
    with counting(db) as counter, Locks(db.url) as others:
        reader = counter.locks.shared("report")
        with reader:
            pass
        assert counter.of(reader.acquire) == 1
        assert counter.of(reader.release) == 1
        with others.shared("report"):
            with reader:
                pass
            assert counter.of(reader.acquire) == 2
            assert counter.of(reader.check) == 0
            assert counter.of(reader.release) == 1


def assert_true(what: bool) -> None:
    assert what
