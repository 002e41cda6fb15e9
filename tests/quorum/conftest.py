"""Quorums of three databases: files, servers of each kind, and a mix."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dblock import Locks, Quorum, Timeouts, Unavailable
from dblock.quorum.attempt import Outcome, QuorumAttempt
from dblock.quorum.lease import QuorumTaking
from dblock.quorum.members import Members
from dblock.schema import upgrade
from tests.patience import SECONDS
from tests.servers import PostgreSQL
from tests.support import eventually

#: One member that is silent costs `connect` once, so the tests wait for less than usual.
TIMES = Timeouts(connect=2, query=5, socket=10)
#: Where no member is silent: a busy machine may need longer for the first connections to three.
PATIENT = Timeouts(connect=SECONDS / 2, query=SECONDS / 2, socket=SECONDS)

#: Seconds of a TTL that no test outlives.
LONG = 60.0

NewDatabase = Callable[..., object]


def three_files(folder: Path) -> list[str]:
    """Make three SQLite files with dblock's tables; return their URLs."""
    urls = [f"sqlite:///{folder / name}.db" for name in ("a", "b", "c")]
    for url in urls:
        upgrade(url)
    return urls


def held_at(urls: list[str], name: str = "report") -> int:
    """At how many of the databases the name is held: a quorum's grant returns at a majority."""
    count = 0
    for url in urls:
        with Locks(url) as locks:
            count += locks.show(name).held
    return count


def writer(url: str) -> sqlite3.Connection:
    """Begin to write to a SQLite file, which nobody else can do until the rollback."""
    file = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
    file.execute("BEGIN IMMEDIATE")
    return file


def answer_last(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """Let the outcomes of a member come after the verdict of the others."""
    deliver = QuorumAttempt._deliver

    def late(attempt: QuorumAttempt, number: int, outcome: Outcome) -> None:
        if number == last:
            eventually(lambda: attempt.state != "deciding")
        deliver(attempt, number, outcome)

    monkeypatch.setattr(QuorumAttempt, "_deliver", late)


def use_once(quorum: Quorum) -> None:
    with quorum.lease("before", ttl=LONG, wait=SECONDS):
        pass
    quorum._members.rest()


def attempt_of(quorum: Quorum) -> QuorumAttempt:
    lease = quorum.lease("report", ttl=LONG)
    taking = QuorumTaking(quorum._members, "report", lease._options)
    return QuorumAttempt(quorum._members, taking._request(), quorum._members.records.prepare(LONG))


def name_of(members: Members, first: int) -> str:
    """A name whose waiters wait at this member."""
    return next(name for name in map(str, range(99)) if members.order(name)[0] == first)


def raise_fence(url: str, name: str) -> None:
    """Let a member count holds that the others have not seen."""
    with Locks(url) as locks:
        for _ in range(5):
            with locks.lease(name, wait=SECONDS):
                pass


def away(procedure: Any, *args: Any, **named: Any) -> Any:
    """Be the `run` of a member that cannot be reached."""
    procedure.close()
    raise Unavailable("away")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return three_files(tmp_path)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb", "mysql", "mix"])
def three(request: pytest.FixtureRequest, new_database: NewDatabase, files: list[str]) -> list[str]:
    """The URLs of three databases, all of one kind, or one of each."""
    if request.param == "sqlite":
        return files
    kinds = [request.param] * 3 if request.param != "mix" else ["postgresql", "mariadb"]
    urls = [str(new_database(kind).url) for kind in kinds]  # type: ignore[attr-defined]
    for url in urls:
        upgrade(url)
    return (urls + files)[:3]


@pytest.fixture
def quorum(three: list[str]) -> Iterator[Quorum]:
    with Quorum(three, timeouts=PATIENT) as quorum:
        yield quorum


@pytest.fixture
def servers() -> Iterator[list[PostgreSQL]]:
    """Three PostgreSQL servers of the test's own, with dblock's tables."""
    with ExitStack() as stack:
        found = [stack.enter_context(PostgreSQL()) for _ in range(3)]
        for server in found:
            upgrade(server.url)
        yield found


@pytest.fixture
def others(files: list[str]) -> Iterator[Quorum]:
    """Those of another program."""
    with Quorum(files, timeouts=PATIENT) as others:
        use_once(others)
        yield others
