"""`GET /v1/events`: what a client learns, and what it costs others if a client does not read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from starlette.requests import Request

from dblock import LockLost, Locks
from dblock.aio import AsyncLocks
from dblock.contrib.serve.backlog import Backlog, Behind
from dblock.contrib.serve.changes import ServerSentEvent, event
from dblock.contrib.serve.events import ALL_NAMES_MAX, NAMES_MAX, EventStream, Wanted
from dblock.contrib.serve.feed import Feed, Pace
from dblock.contrib.serve.reading import ReaderThread
from dblock.contrib.serve.rights import Everyone
from dblock.contrib.serve.service import Service
from tests.aio.support import async_url
from tests.conftest import KINDS, NewDatabase, OwnServers
from tests.contrib.serve.running import Running, Stream, listening, token
from tests.servers import PostgreSQL
from tests.support import LONG, SECONDS, SHORT, Threads, eventually


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database("sqlite", migrated=True).url


@pytest.fixture
def locks(url: str) -> Iterator[Locks]:
    with Locks(url, label="worker") as locks:
        yield locks


@pytest.fixture
def service(url: str) -> Iterator[Running]:
    with Running(url) as service:
        yield service


@pytest.fixture
def client(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


# --- what a client learns ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_hold_from_its_grant_to_its_release(
    kind: str, new_database: NewDatabase, threads: Threads
) -> None:
    url = new_database(kind, migrated=True).url
    with Running(url) as service, service.client() as client, Locks(url, label="worker") as locks:

        def wait() -> None:
            with Locks(url, label="waiter") as others, others.lease("report"):
                pass

        with listening(client, name="report") as events:
            told = events.next().data
            assert told.pop("age") >= 0
            assert told == {"leases": [], "leaders": [], "jobs": [], "admin": [""]}
            with locks.lease("report", ttl=LONG) as lease:
                granted = events.until("granted", "report").data
                fence = lease.fence
                assert (granted["fence"], granted["state"]) == (fence, "held")
                assert granted["holder"].endswith("worker")
                assert 0 < granted["expires_in"] <= LONG
                lease.renew(2 * LONG)
                while events.until("changed", "report").data["expires_in"] <= LONG:
                    pass
                threads.start(wait)
                while not (waiters := events.until("changed", "report").data["waiters"]):
                    pass
                assert waiters[0]["waiter"].endswith("waiter")
            assert events.until("released", "report").data["fence"] == fence
        threads.join()


def test_a_stream_begins_with_the_present_state(client: httpx.Client, locks: Locks) -> None:
    @locks.cron("nightly")
    def nightly() -> None:
        raise KeyError("of the job")

    with contextlib.suppress(KeyError):
        nightly()
    with locks.lease("report", ttl=LONG), locks.election("boss").campaign() as term:
        term.proclaim({"address": "10.0.0.7"})
        for _ in range(2):  # the second time it connects again
            with listening(client, name=["boss", "nightly"], prefix="rep") as events:
                told = events.next()
            assert told.kind == "state"
            assert [one["name"] for one in told.data["leases"]] == ["boss", "report"]
            (leader,) = told.data["leaders"]
            assert leader.pop("holder").endswith("worker")
            assert leader == {"name": "boss", "fence": 1, "value": {"address": "10.0.0.7"}}
            (job,) = told.data["jobs"]
            assert (job["name"], job["outcome"], job["exit_status"]) == ("nightly", "failed", 1)
            assert 0 < told.data["leases"][1]["expires_in"] <= LONG


@pytest.mark.parametrize("kind", KINDS)
def test_what_leaders_proclaim(kind: str, new_database: NewDatabase) -> None:
    url = new_database(kind, migrated=True).url
    with (
        Running(url) as service,
        service.client() as client,
        Locks(url) as locks,
        listening(client, name="boss", prefix="other") as events,
    ):
        events.next()
        for value in ("first", {"a": [1]}):
            with locks.election("boss").campaign() as term:
                fence = events.until("granted", "boss").data["fence"]
                for said in (value, 1, True, None):  # in Python 1 equals True
                    term.proclaim(said)
                    told = events.until("proclaimed", "boss").data
                    assert (told["value"], told["fence"]) == (said, fence)
                    assert isinstance(told["value"], type(said))
            events.until("released", "boss")


@pytest.mark.parametrize("stored", ["no JSON", "[" * 100_000, "9" * 5000])
def test_a_value_that_cannot_be_read_ends_no_stream(
    client: httpx.Client, locks: Locks, stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        listening(client, name=["boss", "other"]) as events,
        locks.election("boss").campaign() as term,
        locks.election("other").campaign() as other,
    ):
        events.until("granted", "other")
        term.proclaim("first")
        events.until("proclaimed", "boss")
        with locks.engine.begin() as connection:
            changed = text("UPDATE dblock_value SET value = :stored WHERE lock_name = 'boss'")
            assert connection.execute(changed, {"stored": stored}).rowcount == 1
        eventually(lambda: "cannot be read" in caplog.text)
        for value in (1, 2):
            other.proclaim(value)
            assert events.until("proclaimed", "other").data["value"] == value
        assert caplog.text.count("cannot be read") == 1
        term.proclaim("again")
        assert events.until("proclaimed", "boss").data["value"] == "again"


def test_a_defect_of_a_poll_ends_no_stream(
    client: httpx.Client, locks: Locks, service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The moment of a grant, in the database, is no moment."""
    with listening(client, prefix="") as events:
        events.next()
        with locks.lease("report", ttl=LONG, renew=False):
            events.until("granted", "report")
            with locks.engine.begin() as connection:
                asked = text("SELECT acquired_at FROM dblock_lock WHERE lock_name = 'report'")
                changed = text("UPDATE dblock_lock SET acquired_at = :at")
                before = connection.execute(asked).scalar_one()
                connection.execute(changed, {"at": "no moment"})
            assert events.next().kind == "unavailable"
            assert client.get("/v1/events?prefix=").status_code == 503
            with locks.engine.begin() as connection:
                connection.execute(changed, {"at": before})
            assert events.next().kind == "available"
        events.until("released", "report")
    assert caplog.text.count("Traceback") == 1


def test_an_expiry_and_a_takeover(client: httpx.Client, locks: Locks, url: str) -> None:
    with listening(client, prefix="") as events:
        events.next()
        dead = locks.lease("report", ttl=2.0, renew=False)
        assert dead.acquire()
        events.until("granted", "report")
        assert events.until("expired", "report").data["state"] == "expired"
        taken = locks.lease("report", ttl=LONG)
        assert taken.acquire()
        assert events.until("granted", "report").data["fence"] == taken.fence
        locks.release("report", force=True)
        # Whether a poll comes between the two or not, the client learns of both.
        with Locks(url) as others, others.lease("report") as following:
            assert events.until("released", "report").data["fence"] == taken.fence
            assert events.until("granted", "report").data["fence"] == following.fence
        with pytest.raises(LockLost):
            taken.release()


def test_how_a_job_ended(client: httpx.Client, locks: Locks) -> None:
    @locks.cron("nightly", at_least=LONG)
    def nightly() -> None:
        pass

    with listening(client, prefix="night") as events:
        events.next()
        nightly()
        while events.until("run", "nightly").data["outcome"] != "succeeded":
            pass


def test_only_the_names_that_were_asked_for(client: httpx.Client, locks: Locks) -> None:
    asked = {"name": "a", "prefix": "b/"}
    with locks.lease("b", ttl=LONG), listening(client, **asked) as events:
        assert events.next().data["leases"] == []
        with locks.lease("aa"), locks.lease("b/1"), locks.lease("a"):
            told = [events.next(), events.next()]
            assert [(one.kind, one.data["name"]) for one in told] == [
                ("granted", "a"),
                ("granted", "b/1"),
            ]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "An empty prefix"),
        ("name=", "empty"),
        ("name=a%00", "NUL"),
        ("name=" + "a" * 256, "at most 255"),
        ("prefix=" + "a" * 256, "at most 255"),
        ("prefix=a&prefix=b", "one prefix"),
        ("name=%ff", "UTF-8"),
        ("name", "not readable"),
        ("names=a", "unknown field"),
        ("&".join(["name=a"] * (NAMES_MAX + 1)), f"1 to {NAMES_MAX} names"),
        ("&".join(["name=a"] * (NAMES_MAX + 2)), "not readable"),
    ],
)
def test_bad_queries(client: httpx.Client, query: str, said: str) -> None:
    answer = client.get(f"/v1/events?{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]


def test_names_of_all_clients_are_limited(client: httpx.Client) -> None:
    names = [f"n{number}" for number in range(ALL_NAMES_MAX + 1)]
    halves = names[:NAMES_MAX], names[NAMES_MAX : 2 * NAMES_MAX]
    with listening(client, name=halves[0]) as one, listening(client, name=halves[1]) as two:
        one.next(), two.next()
        assert client.get("/v1/events", params={"name": names[-1]}).status_code == 503
        with listening(client, name=names[0], prefix="m") as three:
            three.next()


def test_head(client: httpx.Client) -> None:
    answer = client.head("/v1/events?prefix=")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"


# --- secrets and rights -----------------------------------------------------------------------


def test_never_a_token(client: httpx.Client, locks: Locks, threads: Threads) -> None:
    """Neither a holder's nor a reader's, in no kind of event."""
    secrets = []

    def read() -> bytes:
        seen = b""
        with client.stream("GET", "/v1/events?prefix=&name=boss") as answer:
            for part in answer.iter_raw():
                seen += part
                if b'"name":"last"' in seen:
                    break
        return seen

    with locks.lease("before") as before:
        secrets.append(before.token)
        reading = threads.start(read)
        with locks.lease("during") as lease, locks.shared("books") as books:
            secrets += [lease.token, books.token]
            with locks.election("boss").campaign() as term:
                secrets.append(term.token)
                term.proclaim("here")
                with listening(client, name="boss") as events:
                    events.next()
                with locks.lease("last") as last:
                    secrets.append(last.token)
                    seen = reading.result(SECONDS)
    assert all(secrets)
    assert b"granted" in seen
    for secret in secrets:
        assert secret.encode() not in seen


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


def test_rights(url: str, locks: Locks, tokens: Path) -> None:
    own, holder = token(tokens, "own", ["own/"], ["read"]), token(tokens, "no", ["own/"], ["hold"])
    with Running(url, tokens) as service:
        for given, query, status in (
            (None, "prefix=", 401),
            ("wrong", "prefix=", 401),
            (own, "name=other", 403),
            (own, "name=own/a&name=other", 403),
            (own, "prefix=other", 403),
            (holder, "prefix=own/", 403),
            (holder, "name=own/a", 403),
        ):
            with service.client(given) as client:
                answer = client.get(f"/v1/events?{query}")
            assert answer.status_code == status, (given, query)
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_prefix_is_limited_to_the_names_that_a_caller_may_read(
    url: str, locks: Locks, tokens: Path
) -> None:
    own, admin = (
        token(tokens, "own", ["own/"], ["read"]),
        token(tokens, "admin", ["own/", "others/"], ["read", "admin"]),
    )

    @locks.cron("others/job")
    def job() -> None:
        pass

    job()
    with (
        Running(url, tokens) as service,
        service.client(own) as tenant,
        service.client(admin) as operator,
        locks.lease("others/a", ttl=LONG),
        listening(tenant, prefix="") as theirs,
        listening(operator, prefix="") as everything,
    ):
        told, all_told = theirs.next().data, everything.next().data
        assert (told["leases"], told["jobs"], told["admin"]) == ([], [], [])
        assert [one["name"] for one in all_told["leases"]] == ["others/a"]
        assert [one["name"] for one in all_told["jobs"]] == ["others/job"]
        assert all_told["admin"] == ["own/", "others/"]
        with locks.lease("others/b", ttl=LONG):
            everything.until("granted", "others/b")
            with locks.lease("own/a", ttl=LONG):
                everything.until("granted", "own/a")
                assert theirs.next().data["name"] == "own/a"


def test_a_stream_ends_when_its_token_is_withdrawn(url: str, locks: Locks, tokens: Path) -> None:
    given = token(tokens, "own", [""], ["read"])
    with (
        Running(url, tokens) as service,
        service.client(given) as client,
        listening(client, prefix="") as events,
    ):
        events.next()
        tokens.write_text("")
        with locks.lease("after", ttl=LONG):
            assert [one.data for one in events] == []


# --- what it costs ----------------------------------------------------------------------------


def polls(service: Running) -> int:
    """How many pollers there are."""
    tasks: set[asyncio.Task[Any]] = service.call(asyncio.all_tasks)
    return sum("Feed._poll" in repr(task) for task in tasks)


def test_one_poller_for_all_clients_which_leave(service: Running, locks: Locks) -> None:
    before = len(service.call(asyncio.all_tasks))
    with contextlib.ExitStack() as stack:
        streams = []
        for number in range(5):
            client = stack.enter_context(service.client())
            asked = {"prefix": "r"} if number % 2 else {"name": "report"}
            streams.append(stack.enter_context(listening(client, **asked)))
        for stream in streams:
            stream.next()
        assert polls(service) == 1
        with locks.lease("report"):
            for stream in streams:
                stream.until("granted", "report")
    eventually(lambda: polls(service) == 0)
    eventually(lambda: len(service.call(asyncio.all_tasks)) <= before)
    with service.client() as client, listening(client, prefix="") as events:
        events.next()
        assert polls(service) == 1


def test_streams_end_when_the_service_stops(service: Running, client: httpx.Client) -> None:
    with listening(client, prefix="") as events:
        events.next()
        service.stop()
        assert list(events) == []


def test_a_database_that_is_away(new_database: NewDatabase, own_server: OwnServers) -> None:
    server = own_server(PostgreSQL)
    url = new_database("postgresql", migrated=True, server=server).url
    with (
        Running(url) as service,
        service.client() as client,
        Locks(url) as locks,
        listening(client, prefix="") as events,
    ):
        events.next()
        server.stop()
        assert events.next().kind == "unavailable"
        assert client.get("/v1/events?prefix=").status_code == 503
        server.start()
        assert events.next().kind == "available"
        with locks.lease("report"):
            events.until("granted", "report")


def made(number: int) -> ServerSentEvent:
    return event("changed", f"n{number}", {"name": f"n{number}"})


def test_events_that_nobody_reads_are_let_go() -> None:
    async def run() -> None:
        kept = 100 * len(made(1000).text)
        backlog = Backlog(kept)
        for number in range(1000, 3000):
            backlog.add([made(number)])
            assert backlog.size <= kept
        assert backlog.last == 2000
        assert await backlog.after(1900, 0) == [made(number) for number in range(2900, 3000)]
        assert await backlog.after(2000, 0) == []
        with pytest.raises(Behind):
            await backlog.after(1899, 0)

    asyncio.run(run())


class Client:
    """The other end of a stream of events, in the service's own event loop. It may stop reading."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.read: list[bytes] = []
        self.ended = False
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.read.append(message.get("body", b""))
        self.ended = message["type"] == "http.response.body" and not message.get("more_body")

    async def has_read(self, text: bytes) -> None:
        async with asyncio.timeout(SECONDS):
            while not any(text in part for part in self.read):
                await asyncio.sleep(0.005)

    def listen(self, locks: AsyncLocks, feed: Feed) -> asyncio.Task[None]:
        scope = {"type": "http", "method": "GET", "headers": [], "path": "/", "query_string": b""}
        request = Request(scope, self.receive)
        wanted = Wanted(frozenset(), "")
        stream = EventStream(Service(locks, Everyone()), feed, wanted, request)
        return asyncio.create_task(stream(scope, self.receive, self.send))


def test_a_client_that_does_not_read_is_dropped_and_others_are_served(url: str) -> None:
    async def run() -> None:
        async with AsyncLocks(async_url(url)) as locks:
            feed = Feed(ReaderThread(locks), Pace(poll=0.02, patience=0.3))
            slow, quick = Client(), Client()
            tasks = slow.listen(locks, feed), quick.listen(locks, feed)
            await slow.has_read(b"event: state")
            slow.reads.clear()
            async with locks.lease("report"):
                await quick.has_read(b"event: granted")
                async with asyncio.timeout(SECONDS):
                    await tasks[0]  # it has ended by itself
                assert not slow.ended
            await quick.has_read(b"event: released")
            quick.gone.set()
            async with asyncio.timeout(SECONDS):
                await tasks[1]

    asyncio.run(run())


def test_a_client_that_is_too_slow_begins_again(url: str) -> None:
    """It missed events that are no longer kept, so its stream ends: it would not know of them."""

    async def run() -> None:
        async with AsyncLocks(async_url(url)) as locks:
            feed = Feed(ReaderThread(locks), Pace(poll=0.02, kept=1500))
            slow, quick = Client(), Client()
            tasks = slow.listen(locks, feed), quick.listen(locks, feed)
            await slow.has_read(b"event: state")
            await quick.has_read(b"event: state")
            slow.reads.clear()
            for number in range(5):
                async with locks.lease(f"n{number}"):
                    await quick.has_read(b'"n%d"' % number)
            assert feed.backlog.size <= 1500
            slow.reads.set()
            async with asyncio.timeout(SECONDS):
                await tasks[0]
            assert slow.ended
            quick.gone.set()
            await tasks[1]

    asyncio.run(run())


def test_a_quiet_stream_has_a_heartbeat(url: str) -> None:
    async def run() -> None:
        async with AsyncLocks(async_url(url)) as locks:
            feed = Feed(ReaderThread(locks), Pace(poll=0.02, heartbeat=SHORT))
            client = Client()
            task = client.listen(locks, feed)
            async with asyncio.timeout(SECONDS):
                while client.read.count(b":\n\n") < 3:
                    await asyncio.sleep(0.01)
            client.gone.set()
            await task

    asyncio.run(run())


def test_the_stream_is_read_as_the_standard_says() -> None:
    """The reader of these tests ignores comments, and joins no lines: the service sends one."""
    text = ':\n\nevent: granted\ndata: {"name":"a"}\n\n'
    stream = Stream(httpx.Response(200, text=text))
    assert [(one.kind, one.data) for one in stream] == [("granted", {"name": "a"})]
    assert stream.comments == 1
