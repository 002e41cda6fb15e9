"""A leader is killed with SIGKILL: it leads until its term is over, and no longer."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from dblock import Locks
from tests.conftest import Database
from tests.processes.workers import SECONDS, Process, hold, lead, observe

LONG = 600.0
SHORT = 4.0
#: How much later a term may follow another than a lease does another.
SLACK = 10.0


def until(observer: Process, wanted: Any) -> list[Any]:
    seen = [observer.message()]
    while seen[-1] != wanted:
        seen.append(observer.message())
    return seen


def test_a_killed_leader_is_followed_when_its_term_is_over(db: Database) -> None:
    """And as soon as a plain lease is, which is the yardstick."""
    with ExitStack() as stack:
        locks = stack.enter_context(Locks(db.url))
        observer = stack.enter_context(Process(observe, db.url))
        assert observer.message() is None
        holder = stack.enter_context(Process(hold, db.url, {"yardstick": SHORT}, []))
        victim = stack.enter_context(Process(lead, db.url, SHORT, "first"))
        assert holder.message() == "held"
        assert (victim.message(), victim.message()) == ("campaigning", 1)
        assert (1, "first") in until(observer, (1, "first"))
        with Process(lead, db.url, LONG, "second") as successor:
            assert successor.message() == "campaigning"
            holder.kill()
            victim.kill()
            election = locks.election("leader")
            left, yardstick = locks.show("leader"), locks.show("yardstick")
            assert left.expires_at is not None
            assert yardstick.expires_at is not None
            leader = election.leader()
            assert leader is not None
            assert (leader.fence, leader.value) == (1, "first")  # it may act yet, for all we know
            with locks.lease("yardstick", ttl=LONG, wait=SECONDS):
                usual = locks.show("yardstick")
            assert successor.message() == 2
            leader = election.leader()
            assert leader is not None
            assert usual.acquired_at is not None
            # All by the database's clock.
            late = (leader.since - left.expires_at).total_seconds()
            lease_is_late = (usual.acquired_at - yardstick.expires_at).total_seconds()
            assert 0 <= late < lease_is_late + SLACK
            assert (leader.fence, leader.value) == (2, "second")
            seen = until(observer, (2, "second"))
            assert set(seen) <= {None, (2, None), (2, "second")}
            successor.go_on()
            assert until(observer, None) == [None]


def test_a_killed_observer_is_in_nobodys_way(db: Database) -> None:
    with Locks(db.url) as locks, Process(observe, db.url) as observer:
        assert observer.message() is None
        observer.kill()
        with locks.election("leader").campaign(SECONDS) as term:
            term.proclaim(1)
            leader = locks.election("leader").leader()
            assert leader is not None
            assert leader.value == 1
