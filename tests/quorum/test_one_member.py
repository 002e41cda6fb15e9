"""What goes wrong at one member, or for one hold, stops nothing else. An attack has found these."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from dblock import LockLost, Locks, NotHeld, Quorum, SchemaMissing, Unavailable
from dblock.aio import AsyncQuorum
from dblock.handles.taking import Taking
from dblock.holding.worker import start_quietly
from dblock.protocol.renew import Asked, RenewalFailed
from dblock.protocol.state import Renewal
from dblock.protocol.term import Term
from dblock.quorum import attempt as attempts
from dblock.quorum import fan, lease
from tests.patience import SECONDS
from tests.quorum.conftest import LONG, PATIENT, away, held_at, name_of, use_once
from tests.support import Threads, eventually


@pytest.fixture
def quorum(files: list[str]) -> Iterator[Quorum]:
    with Quorum(files, timeouts=PATIENT) as quorum:
        use_once(quorum)
        yield quorum


def change(url: str, statement: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        file.execute(statement)


def hold_at(quorum: Quorum, *numbers: int, name: str = "report") -> Any:
    """Take a lease that only these members have, and that renews itself no more."""
    held = quorum.lease(name, ttl=LONG, renew=False, wait=SECONDS)
    assert held.acquire()
    quorum._members.rest()
    for number, database in enumerate(quorum._members.databases):
        if number not in numbers:
            with Locks(database.engine) as locks:
                locks.release(name, force=True)
    return held


# --- renewals ------------------------------------------------------------------------------------


def asked(held: Any) -> Asked:
    return Asked(Renewal(held.name, held.token, LONG), held._holds.get().lease)


def test_a_hold_in_need_of_a_silent_member_delays_no_other(quorum: Quorum) -> None:
    well, ill = hold_at(quorum, 0, 1, 2), hold_at(quorum, 0, 2, name="other")
    members, over = quorum._members, threading.Event()

    def silent(procedure: Any, *args: Any, **named: Any) -> Any:
        over.wait(SECONDS)
        return away(procedure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members.databases[2], "run", silent)
        members.suspects.add(2)
        first, second = members.renew_all([asked(well), asked(ill)], SECONDS)
        over.set()
        members.rest()
    assert isinstance(first, Term)
    assert isinstance(second, RenewalFailed)
    well.release()
    ill.release()


def test_the_keeper_renews_while_a_longer_ttl_is_recorded(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member was silent then, and the caller's own renewal kept the keeper out."""
    with quorum.lease("report", ttl=3.0, wait=SECONDS) as held:
        hold, settle = held._holds.get(), quorum._members.records.settle

        def slow(ttl: float) -> None:
            before = hold.lease.term
            eventually(lambda: hold.lease.term.deadline > before.deadline)
            settle(ttl)

        monkeypatch.setattr(quorum._members.records, "settle", slow)
        held.renew(2 * LONG)
        assert held.remaining > LONG


def test_a_renewal_of_a_lost_lease_asks_nobody(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = quorum.lease("report", ttl=0.5, renew=False, wait=SECONDS)
    with pytest.raises(ValueError, match="TTL"):
        held.renew(-1)
    with pytest.raises(NotHeld):
        held.renew(2 * LONG)
    assert held.acquire()
    eventually(lambda: not held.held)
    monkeypatch.setattr(quorum._members.records, "settle", interrupt)
    with pytest.raises(LockLost):
        held.renew(2 * LONG)


# --- queues --------------------------------------------------------------------------------------


def waiter(quorum: Quorum, name: str) -> bool:
    return any(state.waiters for state in quorum.list() if state.name == name)


def test_a_waiter_leaves_the_queue_of_a_member_without_tables(
    files: list[str], quorum: Quorum, others: Quorum
) -> None:
    name = name_of(others._members, 0)
    held = hold_at(quorum, 0, 1, 2, name=name)
    change(files[0], "ALTER TABLE dblock_lock RENAME TO gone")
    threading.Timer(0.5, held.release).start()
    waiting = others.lease(name, ttl=LONG, wait=SECONDS)
    assert waiting.acquire()
    waiting.release()


def test_a_waiter_whose_row_stays_has_the_name(
    files: list[str], quorum: Quorum, others: Quorum, threads: Threads
) -> None:
    """The queue's grant was forgotten, and stayed at that member."""
    name = name_of(others._members, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(others._members.databases[0], "withdraw", away_for_good)
        held = hold_at(quorum, 0, 1, 2, name=name)
        waiting = others.lease(name, ttl=LONG, wait=SECONDS)
        taking = threads.start(waiting.acquire)
        eventually(lambda: waiter(quorum, name))
        held.release()
        assert taking.result(SECONDS)
        waiting.release()
    others._members.rest()
    assert held_at(files, name) == 0


def away_for_good(waiter: object) -> None:
    raise Unavailable("away")


def test_an_interrupted_waiter_gives_back_what_its_queue_has_granted(
    files: list[str], quorum: Quorum, others: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, attempt, made = name_of(others._members, 0), attempts.QuorumAttempt, list[object]()

    def interrupted(*args: Any) -> Any:
        made.append(args)
        if len(made) == 2:  # the first is the one before the wait
            raise KeyboardInterrupt
        return attempt(*args)

    held = hold_at(quorum, 0, 1, 2, name=name)
    monkeypatch.setattr(lease, "QuorumAttempt", interrupted)
    threading.Timer(0.5, held.release).start()
    with pytest.raises(KeyboardInterrupt):
        others.lease(name, ttl=LONG, wait=SECONDS).acquire()
    eventually(lambda: held_at(files, name) == 0)


def test_what_a_signal_handler_raises_ends_a_wait(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a time limit of the application's does: it was taken for a member's error."""

    def limited(*args: Any) -> Any:
        raise TimeoutError("the application's own limit")

    alone = Locks(quorum._members.databases[0].engine)
    second = Locks(quorum._members.databases[1].engine)
    with alone, second, alone.lease("report", ttl=LONG), second.lease("report", ttl=LONG):
        monkeypatch.setattr(Taking, "run", limited)
        with pytest.raises(TimeoutError, match="own limit"):
            quorum.lease("report", wait=SECONDS).acquire()
        assert not quorum._members.suspects


def test_a_member_that_is_away_during_the_first_use(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others did not vote yet, and the name looked as if another had it."""
    with Quorum(files, timeouts=PATIENT) as quorum:
        records = quorum._members.records
        rewrite = records._rewrite

        def cut_off(changes: Any, number: int) -> None:
            rewrite(changes, number)
            if number == 2:
                monkeypatch.setattr(quorum._members.databases[2], "run", away)

        monkeypatch.setattr(records, "_rewrite", cut_off)
        with pytest.raises(Unavailable, match="the first use of a quorum needs all its members"):
            quorum.lease("report", wait=0).acquire()
        monkeypatch.undo()
        with quorum.lease("report", wait=0):
            pass


# --- interrupts ----------------------------------------------------------------------------------


def test_an_interrupt_at_the_start_of_a_thread_takes_none_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = threading.Event()
    crew = fan.Crew("test")
    with monkeypatch.context() as patch:
        patch.setattr(fan, "start_quietly", interrupt)
        for _ in range(fan.MOST):
            with pytest.raises(KeyboardInterrupt):
                crew.begin(lambda: None)
    crew.begin(done.set)
    assert done.wait(SECONDS)
    crew.rest(SECONDS)
    assert not crew._waiting


def test_an_interrupt_after_the_start_of_a_thread_counts_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise no rest() of the crew would end."""
    crew, done = fan.Crew("test"), threading.Event()

    def started(thread: threading.Thread) -> None:
        start_quietly(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fan, "start_quietly", started)
        with pytest.raises(KeyboardInterrupt):
            crew.begin(done.set)
    assert done.wait(SECONDS)
    eventually(lambda: crew._idle == len(crew._threads) == 1)


def interrupt(*args: object) -> Any:
    raise KeyboardInterrupt


def test_a_leader_writes_again_after_an_interrupt(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    term: Any = quorum.election("main", ttl=LONG).campaign(wait=SECONDS)
    term.proclaim("first")
    quorum._members.rest()
    with monkeypatch.context() as patch:
        patch.setattr(quorum._members.fan, "begin", interrupt)
        with pytest.raises(KeyboardInterrupt):
            term.proclaim("second")
    term.proclaim("third")
    leader = quorum.election("main").leader()
    assert leader is not None
    assert leader.value == "third"
    term.resign()


# --- what operators see --------------------------------------------------------------------------


def test_a_lease_of_a_majority_is_shown_while_one_of_them_is_away(
    files: list[str], quorum: Quorum, others: Quorum
) -> None:
    """It was shown as free, and its release by force was told to have released nothing."""
    held = hold_at(quorum, 0, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(others._members.databases[2], "run", away)
        assert others.show("report").held
        assert [state.held for state in others.list()] == [True]
        assert others.lease("report").locked()
        assert others.release("report", force=True)
        assert not others.show("report").held
        assert not others.release("report", force=True)
    assert held_at(files) == 1
    del held


def test_a_member_says_why_it_does_not_rejoin(files: list[str], quorum: Quorum) -> None:
    change(files[1], "ALTER TABLE dblock_value RENAME TO gone")
    with pytest.raises(SchemaMissing):
        quorum.rejoin(1)


def test_a_member_whose_clock_was_set_back_pauses_for_no_longer_than_the_longest_ttl(
    files: list[str], quorum: Quorum
) -> None:
    """And check() said that it votes."""
    ahead = "strftime('%Y-%m-%d %H:%M:%f', 'now', '+1 hour')"
    for url in files[:2]:
        change(url, f"UPDATE dblock_value SET written_at = {ahead} WHERE lock_name = ''")
    assert [status.state for status in quorum.check()] == ["pauses", "pauses", "votes"]
    quorum._members.records.settle(LONG)
    assert all(status.seconds <= LONG for status in quorum.check())


def test_a_closed_quorum(files: list[str]) -> None:
    quorum = Quorum(files)
    quorum.close()
    for use in (
        quorum.lease("report", wait=0).acquire,
        quorum.lease("report").acquire,
        quorum.check,
        quorum.list,
        lambda: quorum.show("report"),
        lambda: quorum.release("report", force=True),
        quorum.election("main").leader,
    ):
        with pytest.raises(ValueError, match="this Quorum is closed"):
            use()


def test_a_closed_quorum_in_tasks(files: list[str]) -> None:
    async def main() -> None:
        quorum = AsyncQuorum(files)
        await quorum.close()
        with pytest.raises(ValueError, match="this Quorum is closed"):
            await quorum.lease("report", wait=0).acquire()

    asyncio.run(main())


def test_several_leases_are_of_one_quorum(files: list[str], quorum: Quorum) -> None:
    with Quorum(files) as another, Locks(files[0]) as locks:
        for lease in (another.lease("a"), locks.lease("a")):
            with pytest.raises(TypeError, match="leases of this Quorum"):
                quorum.all(quorum.lease("b"), lease)  # type: ignore[arg-type]
