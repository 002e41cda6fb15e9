"""All names are read beside the event loop, however many they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dblock import Locks
from dblock.aio import AsyncLocks
from dblock.lock_state import LockState
from tests.conftest import KINDS, NewDatabase
from tests.contrib.serve.running import Running, listening
from tests.support import SECONDS, eventually


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, new_database: NewDatabase) -> str:
    return new_database(request.param, migrated=True).url


class Slow:
    """A list of so many names that to read it takes until it may end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        read = AsyncLocks.list

        async def slow(locks: AsyncLocks) -> list[LockState]:
            self.begun.set()
            assert self.may_end.wait(SECONDS)  # the thread itself waits, not a task
            return await read(locks)

        monkeypatch.setattr(AsyncLocks, "list", slow)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(monkeypatch)
    yield made
    made.may_end.set()


@pytest.mark.parametrize("path", ["/v1/leases", "/metrics"])
def test_requests_are_answered_while_all_names_are_read(url: str, slow: Slow, path: str) -> None:
    with Running(url) as service, service.client() as client, ThreadPoolExecutor(1) as pool:
        listed = pool.submit(client.get, path)
        assert slow.begun.wait(SECONDS)
        with service.client() as other:
            assert other.get("/readyz").status_code == 200
        assert not listed.done()
        slow.may_end.set()
        assert listed.result(SECONDS).status_code == 200


def test_requests_are_answered_while_the_events_are_polled(url: str, slow: Slow) -> None:
    with (
        Locks(url) as locks,
        locks.lease("report"),
        Running(url) as service,
        service.client() as client,
        ThreadPoolExecutor(1) as pool,
    ):

        def first() -> list[str]:
            with service.client() as other, listening(other, prefix="") as events:
                return [one["name"] for one in events.next().data["leases"]]

        state = pool.submit(first)
        assert slow.begun.wait(SECONDS)
        assert client.get("/readyz").status_code == 200
        assert not state.done()
        slow.may_end.set()
        assert state.result(SECONDS) == ["report"]


def readers() -> int:
    return sum(thread.name == "dblock reader" for thread in threading.enumerate())


def test_the_thread_ends_with_its_last_user(url: str) -> None:
    with Running(url) as service, service.client() as client:
        with service.client() as other, listening(other, prefix="") as events:
            events.next()
            assert client.get("/v1/leases").status_code == 200
            assert readers() == 1
        eventually(lambda: readers() == 0)
        assert client.get("/v1/leases").status_code == 200
        eventually(lambda: readers() == 0)


def test_a_database_that_is_away_is_told() -> None:
    with (
        Running("postgresql://nobody@127.0.0.1:9/none") as service,
        service.client() as client,
    ):
        answer = client.get("/v1/leases")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:dblock:problem:unavailable")
