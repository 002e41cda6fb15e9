"""``GET /v1/events``: grants, releases and leaders' values, as server-sent events.

A stream begins with the present state, so a client that connects again misses nothing, and events
have no ids. A client reads at its own pace. If it is too slow, the service ends its stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from ...arguments import check_name
from ...errors import DBLockError
from . import problems
from .backlog import Behind
from .changes import compact
from .disconnect import Gone, while_waiting
from .feed import Feed, Pace
from .objects import leader_object, named_run
from .openapi import answer, operation, parameter
from .problems import Problem, invalid, unavailable
from .routing import Route

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from .changes import ServerSentEvent, Snapshot
    from .rights import AuthorizedCaller, Rights
    from .service import Service

logger = logging.getLogger("dblock.serve")

KIND = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
#: Names that a client may ask for by name, and names that all clients of a process may ask for.
NAMES_MAX, ALL_NAMES_MAX = 100, 200
#: The present state is sent in parts of about this size, in bytes.
PART = 32 * 1024
PACE = Pace()
_NAME = {"type": "string", "minLength": 1, "maxLength": 255}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The names that a client has asked for."""

    names: frozenset[str]
    prefix: str | None

    def covers(self, name: str, caller: AuthorizedCaller) -> bool:
        """Whether the client has asked for a name, and may read it."""
        asked = name in self.names or (self.prefix is not None and name.startswith(self.prefix))
        return asked and caller.may("read", name)

    def wants(self, event: ServerSentEvent, caller: AuthorizedCaller) -> bool:
        """Whether to send an event. A leader's value is for clients that ask for its name."""
        if event.name is None:
            return True
        named = event.kind != "proclaimed" or event.name in self.names
        return named and self.covers(event.name, caller)


def wanted(query: bytes) -> Wanted:
    """Return the names that a query asks for. Raises Problem."""
    try:
        fields = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=NAMES_MAX + 1,
        )
    except ValueError:
        raise invalid(
            f"The query is not readable: it has at most {NAMES_MAX} fields name=NAME and one field "
            "prefix=PREFIX, percent-encoded UTF-8."
        ) from None
    unknown = {field for field, _ in fields} - {"name", "prefix"}
    if unknown:
        raise invalid("The query has an unknown field: name and prefix are allowed.")
    names = [value for field, value in fields if field == "name"]
    prefixes = [value for field, value in fields if field == "prefix"]
    if not fields or len(prefixes) > 1 or len(names) > NAMES_MAX:
        raise invalid(
            f"Ask for 1 to {NAMES_MAX} names with name=NAME, or for one prefix with prefix=PREFIX. "
            "An empty prefix stands for all names that you may read."
        )
    try:
        for name in names + [prefix for prefix in prefixes if prefix]:
            check_name(name)
    except ValueError as error:
        raise invalid(f"{str(error)[:200]}.") from None
    return Wanted(frozenset(names), prefixes[0] if prefixes else None)


def caller_of(request: Request, rights: Rights, asked: Wanted) -> AuthorizedCaller:
    """Return the caller of a request. Raises Problem if the caller may read no asked name."""
    found = rights.caller(request)
    for name in sorted(asked.names):
        rights.check(request, "read", name)
    prefix = asked.prefix
    if prefix is not None and not any(
        prefix.startswith(own) or own.startswith(prefix) for own in found.prefixes
    ):
        rights.check(request, "read", prefix)
    if "read" not in found.rights:
        rights.check(request, "read", prefix or "")
    return found


class EventStream(Response):
    """A response that goes on until its client leaves, is too slow, or the service stops."""

    media_type = KIND

    def __init__(self, service: Service, feed: Feed, asked: Wanted, request: Request) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._service = service
        self._feed = feed
        self._asked = asked
        self._request = request
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; ASGI's call."""
        try:
            await self._serve(scope, receive, send)
        except TimeoutError:
            # The response is not complete, so the server closes the connection.
            logger.info("a stream of events ended: its client did not read it in time")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await self._begin(send)
        else:
            try:
                await while_waiting(self._request, self._service.closing, self._stream(send))
            except Gone:
                return
            except Behind:
                logger.info("a stream of events ended: its client was behind the oldest event")
            except (Problem, DBLockError) as error:
                problem = problems.of(error) if isinstance(error, DBLockError) else error
                if not self._begun:
                    answer = problems.response(problem)
                    self.status_code = answer.status_code
                    await answer(scope, receive, send)
                    return
        await self._send(send, [b""], more=False)

    async def _begin(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        self._begun = True

    async def _send(self, send: Send, pieces: Iterable[bytes], more: bool = True) -> None:
        """Send pieces of the stream. Raises TimeoutError if the client does not read in time.

        Else a client that reads slowly would keep an old state in memory for as long.
        """
        async with asyncio.timeout(self._feed.pace.patience):
            for part in parts(pieces):
                await send({"type": "http.response.body", "body": part, "more_body": more})
                await asyncio.sleep(0)  # other requests have their turn between two parts

    async def _stream(self, send: Send) -> None:
        rights, feed, asked = self._service.rights, self._feed, self._asked
        clock = asyncio.get_running_loop().time
        async with feed.listening(asked.names):
            snapshot, number = await feed.present(asked.names)
            await self._begin(send)
            caller = rights.caller(self._request)
            await self._send(send, state(snapshot, asked, caller, clock))
            del snapshot
            due = clock() + feed.pace.heartbeat
            while True:
                found = await feed.after(number, max(0.0, due - clock()))
                number += len(found)
                # The token may have been withdrawn since.
                caller = rights.caller(self._request)
                texts = [one.text for one in found if asked.wants(one, caller)]
                if not texts and clock() >= due:
                    texts = [b":\n\n"]
                if texts:
                    await self._send(send, texts)
                    due = clock() + feed.pace.heartbeat


def state(
    snapshot: Snapshot, asked: Wanted, caller: AuthorizedCaller, clock: Callable[[], float]
) -> Iterator[bytes]:
    """Yield the first event, piece by piece: the present state of the names that were asked for."""
    locks = (snapshot.text(name) for name in snapshot.locks if asked.covers(name, caller))
    runs = (one for name, one in snapshot.runs.items() if asked.covers(name, caller))
    leaders = (
        leader_object(name, leader)
        for name, leader in snapshot.leaders.items()
        if name in asked.names and leader.value is not None and asked.covers(name, caller)
    )
    yield b'event: state\ndata: {"leases":['
    yield from _listed(locks)
    yield b'],"leaders":['
    yield from _listed(map(compact, leaders))
    yield b'],"jobs":['
    yield from _listed(compact(named_run(one)) for one in runs)
    admin = caller.prefixes if "admin" in caller.rights else ()
    age = round(clock() - snapshot.at, 3)
    yield b'],"admin":%b,"age":%b}\n\n' % (compact(admin), compact(age))


def _listed(texts: Iterable[bytes]) -> Iterator[bytes]:
    for index, text in enumerate(texts):
        yield b"," + text if index else text


def parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join pieces into parts of a good size to send."""
    part = bytearray()
    sent = False
    for piece in pieces:
        part += piece
        if len(part) >= PART:
            yield bytes(part)
            part.clear()
            sent = True
    if part or not sent:
        yield bytes(part)


def routes(service: Service, pace: Pace = PACE) -> list[Route]:
    """Return the route of events."""
    feed = Feed(service.reader, pace)

    async def get(request: Request) -> Response:
        asked = wanted(request.scope["query_string"])
        caller_of(request, service.rights, asked)
        if len(feed.elections | asked.names) > ALL_NAMES_MAX:
            raise unavailable(
                f"Clients of this process already listen to {ALL_NAMES_MAX} names by name. "
                "Ask for a prefix."
            )
        return EventStream(service, feed, asked, request)

    described = operation(
        "Listen to grants and releases of names, and to what leaders proclaim.",
        parameters=[
            {**parameter("name", "query", {"type": "array", "items": _NAME}), "explode": True},
            parameter("prefix", "query", {"type": "string", "maxLength": 255}),
        ],
        answers={
            200: answer("Server-sent events, without an end.", {"type": "string"}, kind=KIND),
        },
        problems=("invalid", "unauthorized", "forbidden", "unavailable", "internal"),
    )
    return [Route("GET", "/v1/events", get, described)]
