"""The connections of the server: how many there are, and what one may take for a request.

uvicorn limits nothing: a client that sends one byte a minute keeps its connection forever, and
endless headers fill the memory.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: The bytes that a request has beside its body, at most: its URL, headers, chunk sizes, trailers.
HEAD_MAX = 64 * 1024


class Pipelined(Exception):
    """A client has sent a request before the one before was answered."""


class ClientConnections:
    """The rules of one server, and its connections that have sent no whole request.

    When there are more than ``most``, the connection ends that has been without a request for the
    longest time. So clients that only hold connections harm no client with a request. ``seconds``
    is how long a client may take to send a request.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.most = most
        self.seconds = seconds
        self.without_request: dict[ClientConnection, None] = {}

    def protocol(self, **options: Any) -> ClientConnection:
        """Return the protocol of a new connection, as uvicorn asks for it."""
        return ClientConnection(self, **options)

    def make_room(self, newest: ClientConnection) -> None:
        """End a connection if there are too many."""
        if len(newest.connections) > self.most:
            # It may be the newest itself, if all others wait for an answer.
            ending = next(iter(self.without_request))
            # The event loop reports the end later. It does not count from now on.
            del self.without_request[ending]
            ending.connections.discard(ending)
            ending.transport.abort()


class ClientConnection(HttpToolsProtocol):
    """A connection that has to send whole requests in time, and one at a time.

    While a second request waits for its turn, uvicorn does not read. So it would not learn that the
    client of the first has gone away.
    """

    def __init__(self, rules: ClientConnections, **options: Any) -> None:
        super().__init__(**options)
        self._rules = rules
        self._begun = True  # a new connection has to send a request, too
        self._deadline: asyncio.TimerHandle | None = None
        #: The bytes that have come of the request, without its body.
        self._head = 0

    def connection_made(  # type: ignore[override]  # uvicorn narrows it too: a stream's transport
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._rules.without_request[self] = None
        self._rules.make_room(self)
        self._arm()

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head > HEAD_MAX:
            self.transport.abort()
        # A request that came whole, as most do, needs no timer.
        if self._begun and self._deadline is None:
            self._arm()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            raise Pipelined  # the parser stops
        self._begun = True
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._begun = False
        self._head = 0
        if not self.cycle.response_complete:  # as it is if the answer did not need the body
            self._rules.without_request.pop(self, None)
        self._disarm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self._rules.without_request[self] = None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rules.without_request.pop(self, None)
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(self._rules.seconds, self.transport.abort)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
