"""Elections over a quorum."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import create_engine, text

from dblock import (
    Leader,
    LockLost,
    Locks,
    NotAcquired,
    OutcomeUnknown,
    Quorum,
    Unavailable,
    Unsupported,
)
from dblock.aio import AsyncQuorum
from dblock.handles.election import Leadership
from dblock.protocol.state import LeaderRow
from dblock.quorum.election import leading
from tests.patience import SECONDS
from tests.quorum.conftest import PATIENT, TIMES, held_at
from tests.servers import PostgreSQL
from tests.support import eventually

LONG = 60.0


@pytest.fixture
def two(files: list[str]) -> Iterator[tuple[Quorum, Quorum]]:
    """The quorums of two processes."""
    with Quorum(files, timeouts=PATIENT) as one, Quorum(files, timeouts=PATIENT) as other:
        yield one, other


def test_one_leads_and_the_others_see_its_value(three: list[str], quorum: Quorum) -> None:
    election = quorum.election("main", ttl=LONG, label="one")
    assert election.leader() is None
    with Quorum(three[::-1], timeouts=PATIENT) as elsewhere:
        other = elsewhere.election("main", ttl=LONG, label="two")
        with election.campaign(wait=SECONDS) as term:
            leader = other.leader()
            assert leader is not None
            assert str(leader.owner).endswith(" one")
            fence = term.fence
            assert (leader.fence, leader.value) == (fence, None)
            assert 0 < leader.remaining <= LONG
            with pytest.raises(NotAcquired, match="one"):
                other.campaign(wait=0)
            for value in ({"address": "10.0.0.1"}, [1, [2, {"3": "ä"}]], None, "last"):
                term.proclaim(value)
                leader = other.leader()
                assert leader is not None
                assert leader.value == value
            term.check()
            with pytest.raises(Unsupported, match=r"dblock\.fencing\.gate"):
                term.guard(None).__enter__()  # type: ignore[arg-type]
        assert other.leader() is None
        with other.campaign(wait=SECONDS) as next_term:
            assert next_term.fence > fence
            leader = election.leader()
            assert leader is not None
            assert str(leader.owner).endswith(" two")
            assert leader.value is None


def test_bad_input_is_refused_before_any_io() -> None:
    nowhere = [f"postgresql+psycopg://app@127.0.0.1:{port}/app" for port in (1, 2, 3)]
    with Quorum(nowhere) as quorum:
        with pytest.raises(TypeError, match="reentrant"):
            quorum.election("main", reentrant=True)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="name"):
            quorum.election("")
        election = quorum.election("main")
        with pytest.raises(ValueError, match="interval"):
            election.observe(interval=0)
        with pytest.raises(TypeError, match="takes a function"):
            election.run("work")  # type: ignore[arg-type]


def test_a_member_with_a_larger_fence_has_the_value_too(three: list[str], quorum: Quorum) -> None:
    """Each member numbers its fences on its own: a try that another has refused raised this one's,
    and its grant arrived after the verdict."""
    with quorum.election("main", ttl=LONG).campaign(wait=SECONDS) as term:
        eventually(lambda: held_at(three, "main") == 3)
        with Locks(three[0]) as locks:
            assert locks.release("main", force=True)
        engine = create_engine(three[2])
        with engine.begin() as connection:
            connection.execute(text("UPDATE dblock_lock SET fence = fence + 100"))
        engine.dispose()
        for value in ("first", "second"):
            term.proclaim(value)  # the majority are this member and one more
            leader = quorum.election("main").leader()
            assert leader is not None
            assert leader.value == value


def test_a_deposed_leader_is_told(two: tuple[Quorum, Quorum]) -> None:
    one, other = two
    term = one.election("main", ttl=LONG).campaign(wait=SECONDS)
    with pytest.raises(ValueError, match="bytes of JSON"):
        term.proclaim("x" * 9000)
    assert other.release("main", force=True)
    with other.election("main", ttl=LONG).campaign(wait=SECONDS) as newer:
        newer.proclaim("newer")
        with pytest.raises(LockLost):
            term.proclaim("older")
        assert term.lost.is_set()
        leader = one.election("main").leader()
        assert leader is not None
        assert leader.value == "newer"


def test_run_campaigns_again_after_a_loss(two: tuple[Quorum, Quorum]) -> None:
    one, other = two
    fences = []

    def work(term: Leadership) -> str:
        fences.append(term.fence)
        if len(fences) == 1:
            assert other.release("main", force=True)
        term.proclaim(len(fences))
        return "done"

    assert one.election("main", ttl=LONG).run(work) == "done"
    assert fences == sorted(set(fences))
    assert len(fences) == 2
    assert other.election("main").leader() is None


def test_observers_see_each_change(two: tuple[Quorum, Quorum]) -> None:
    one, other = two
    seen: list[object] = []

    def observe() -> None:
        for leader in other.election("main").observe(interval=0.02):
            seen.append(leader and leader.value)
            if seen[-1] == "end":
                return

    observer = threading.Thread(target=observe)
    observer.start()
    eventually(lambda: seen == [None])
    with one.election("main", ttl=LONG).campaign(wait=SECONDS) as term:
        term.proclaim("first")
        eventually(lambda: seen[-1] == "first")
    eventually(lambda: seen[-1] is None)
    with one.election("main", ttl=LONG).campaign(wait=SECONDS) as term:
        term.proclaim("end")
        observer.join()


def test_the_last_of_many_values_is_there(two: tuple[Quorum, Quorum]) -> None:
    one, other = two
    with one.election("main", ttl=LONG).campaign(wait=SECONDS) as term:

        def proclaim() -> None:
            for number in range(10):
                term.proclaim(number)

        threads = [threading.Thread(target=proclaim) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        leader = other.election("main").leader()
        assert leader is not None
        assert leader.value == 9
        term.proclaim("end")
        leader = other.election("main").leader()
        assert leader is not None
        assert leader.value == "end"


def test_a_majority_has_the_newest_value(servers: list[PostgreSQL]) -> None:
    urls = [server.url for server in servers]
    with Quorum(urls, timeouts=TIMES) as one, Quorum(urls, timeouts=TIMES) as other:
        election = other.election("main")
        with one.election("main", ttl=300).campaign(wait=SECONDS) as term:
            term.proclaim("everywhere")
            servers[0].kill()
            term.proclaim("at two")  # nobody notices
            servers[0].start()

            def newest() -> bool:
                leader = election.leader()
                assert leader is not None
                assert leader.value == "at two"
                return all(status.state != "away" for status in other.check())

            eventually(newest)  # also when the one with the older value is back
            servers[1].kill()
            leader = election.leader()
            assert leader is not None
            assert leader.value == "at two"
            servers[2].kill()
            with pytest.raises(Unavailable):
                election.leader()
            with pytest.raises((OutcomeUnknown, Unavailable)):
                term.proclaim("in vain")
            for server in servers[1:]:
                server.start()


def test_elections_in_tasks(files: list[str]) -> None:
    async def main() -> None:
        async with asyncio.timeout(10 * SECONDS), AsyncQuorum(files, timeouts=PATIENT) as quorum:
            election = quorum.election("main", ttl=LONG)
            observation = election.observe(interval=0.02)
            assert await anext(observation) is None
            async with election.campaign(wait=SECONDS) as term:
                await asyncio.gather(*(term.proclaim(number) for number in range(5)))
                await term.proclaim("task")
                leader = await election.leader()
                assert leader is not None
                assert leader.value == "task"
                while (found := await anext(observation)) is None or found.value != "task":
                    pass
                with pytest.raises(NotAcquired):
                    await quorum.election("main").campaign(wait=0)
            assert await anext(observation) is None

            async def work(term: object) -> int:
                return 7

            assert await election.run(work) == 7

    asyncio.run(main())


# --- of whom an observer knows -------------------------------------------------------------------


def shown(
    fence: int, *value: object, by: str = "x", remaining: float = 5.0, writer: str = ""
) -> LeaderRow:
    told = [writer or by, *value] if value else None
    leader = Leader(by, fence, None, datetime(2026, 1, 1, tzinfo=UTC), remaining)
    return LeaderRow(leader, by, told, fence)


@pytest.mark.parametrize(
    ("leaders", "away", "leader"),
    [
        ([shown(3), shown(3), shown(3)], 0, ("x", 3)),
        ([shown(3), shown(3), shown(4, by="y")], 0, ("x", 3)),
        ([shown(3)], 0, None),
        ([shown(3)], 1, ("x", 3)),
        ([shown(3), shown(4, by="y")], 0, None),
        ([shown(3), shown(4, by="y")], 1, ("y", 4)),
        ([], 1, None),
        # The members number their fences each on its own: the same fence is not the same term.
        ([shown(6), shown(6, by="y")], 0, None),
        ([shown(6, by="y"), shown(6), shown(6)], 0, ("x", 6)),
        # A member that votes again has raised its fences.
        ([shown(5), shown(5), shown(1000)], 0, ("x", 5)),
        ([shown(5), shown(1000)], 1, ("x", 5)),
        ([shown(1000, by="y"), shown(5), shown(5)], 0, ("x", 5)),
    ],
)
def test_a_leader_is_one_that_a_majority_may_show(
    leaders: list[LeaderRow], away: int, leader: tuple[str, int] | None
) -> None:
    found = leading(leaders, away, 2)
    assert (found and (found.owner, found.fence)) == leader


@pytest.mark.parametrize("order", [lambda both: both, reversed])
def test_its_value_is_the_newest(
    order: Callable[[list[LeaderRow]], Iterator[LeaderRow]],
) -> None:
    former = shown(3, 11, "a former leader's", writer="y")
    found = leading(list(order([shown(3, 10, "new"), shown(3, 9, "old"), former])), 0, 2)
    assert found is not None
    assert found.value == "new"


@pytest.mark.parametrize("other", [["y", 12, "another's"], "a lone leader's", 3, None])
def test_its_value_is_also_where_its_hold_is_lost(other: object) -> None:
    """The majority that have the value need not be the one that has the hold."""
    lost = LeaderRow(None, None, ["x", 10, "new"], 3)
    found = leading([shown(3, 9, "old"), lost, LeaderRow(None, "y", other, 4)], 1, 2)
    assert found is not None
    assert found.value == "new"


def test_its_term_is_over_when_less_than_a_majority_has_it() -> None:
    found = leading([shown(3, remaining=seconds) for seconds in (1, 9, 4)], 0, 2)
    assert found is not None
    assert found.remaining == 4
