"""A TCP proxy between dblock and its server, which loses what a network can lose.

Two threads pump each connection. A rule waits for the n-th request with certain bytes in it and
does something to it, once; the rest passes. Its hook can do more at that moment: stop the server,
say. Requests are recorded, one entry a flight: all that the client sends before the server answers.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Self

from sqlalchemy import make_url

from tests.faults.answers import THEN, is_whole
from tests.patience import SECONDS as SECONDS

# The ports from which proxies reach servers, one after the other. A system gives its clients other
# ones by itself, above these, so no other session of a server gets a port that was a proxy's.
_PORTS = itertools.cycle(range(16384, 32768))
_TAKEN = errno.EADDRINUSE, errno.EADDRNOTAVAIL


class Lose(Enum):
    """What happens to the request that a rule was waiting for."""

    NOTHING = auto()  # it is passed on, after the rule's hook has run
    REQUEST = auto()  # the connection is cut, the server never sees it
    REPLY = auto()  # the server answers; the answer is dropped and the connection is cut
    REPLY_SILENTLY = auto()  # the same, but the client hears nothing, not even a cut
    TIMELINESS = auto()  # cut for the client alone; `Rule.deliver` lets the server see it
    CONNECTIONS = auto()  # it is passed on, and every connection is reset before the reply
    HEARING = auto()  # from it on nothing gets through on its connection, not even its end


@dataclass
class Rule:
    """``hook`` runs in the proxy's thread, at the moment of the loss and before any cut."""

    marker: bytes
    lose: Lose
    hook: Callable[[], None] = lambda: None
    nth: int = 1
    of_replies: bool = False  # it waits for what the server sends
    done: threading.Event = field(default_factory=threading.Event)
    send_late: Callable[[], None] | None = None
    answered: threading.Event = field(default_factory=threading.Event)

    def deliver(self) -> None:
        """Let the server run the delayed request, and wait until it has."""
        assert self.send_late is not None, "the request has not been sent yet"
        self.send_late()
        assert self.answered.wait(SECONDS)


class Proxy:
    """Listens on a port of its own; `url` is its upstream's with that port in it."""

    def __init__(self, upstream: str) -> None:
        url = make_url(upstream)
        self._upstream = (url.host or "127.0.0.1", url.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        url = url.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        if url.get_backend_name() == "postgresql":  # neither hidden from the rules nor tried twice
            url = url.update_query_dict({"sslmode": "disable", "gssencmode": "disable"})
        self.url = url.render_as_string(hide_password=False)
        self.accepted, self.requests = 0, list[bytes]()
        self.ports = set[int]()  # from where it reaches the server: by them its sessions are known
        self.delay = 0.0  # seconds on the way, of each request and each reply
        self.trickle = 0.0  # seconds between any two bytes of a reply
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._rules: list[Rule] = []
        self.deaf = self._refusing = False
        self.passing = threading.Event()  # while it is not set, whatever comes is kept
        self.passing.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(
        self,
        what: Lose,
        marker: bytes,
        hook: Callable[[], None] = lambda: None,
        nth: int = 1,
        *,
        of_replies: bool = False,
    ) -> Rule:
        """Do it to the n-th request, or reply, from now that contains ``marker``."""
        self._rules.append(rule := Rule(marker, what, hook, nth, of_replies))
        return rule

    def count(self, marker: bytes) -> int:
        """Return how many requests so far contained ``marker``."""
        return sum(marker in request for request in self.requests)

    def rule_for(self, request: bytes, *, of_replies: bool = False) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.of_replies is of_replies and rule.marker in request:
                    rule.nth -= 1
                    if rule.nth == 0:
                        self._rules.remove(rule)
                        return rule
            return None

    def cut(self) -> None:
        """Reset every connection."""
        for link in list(self._links):
            link.cut()

    def refuse(self, *, cut: bool = True) -> None:
        """Reset every connection, unless it is not to be cut, and each new one at once."""
        self._refusing = True
        if cut:
            self.cut()

    def lead_to(self, upstream: str) -> None:
        """Reset every connection, and make the new ones to another server."""
        url = make_url(upstream)
        self._upstream = (url.host or "127.0.0.1", url.port or 0)
        self.cut()

    def restore(self) -> None:
        self._refusing = self.deaf = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            self.accepted += 1
            upstream = self._upstream
            try:
                if self._refusing:
                    raise ConnectionRefusedError
                server = connect(upstream)
            except OSError:
                reset(client)
                continue
            self.ports.add(server.getsockname()[1])
            self._links.append(link := Link(self, client, server))
            for pump in (link.pump_requests, link.pump_replies):
                threading.Thread(target=pump, daemon=True).start()
            # Who resets all connections says first what the new ones are to be, so one that was
            # being made meanwhile is seen by one of the two.
            if self._refusing or self._upstream is not upstream:
                link.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
        self._listener.close()
        self.passing.set()
        self.cut()


class Link:
    """One client's connection and the server's other half of it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._rule: Rule | None = None  # what the reply on its way has to meet
        self._several = False  # that reply is of several statements, which are answered one by one
        self._reply = b""  # what has come of it
        self._mute = self._late = self._deaf = False
        self._answered = True

    def cut(self) -> None:
        reset(self._client)
        reset(self._server)

    def pump_requests(self) -> None:
        for request in received(self._client):
            if self._answered:
                self._proxy.requests.append(request)
            else:
                self._proxy.requests[-1] += request
            self._answered = False
            if self._deaf or self._proxy.deaf:
                continue
            self._proxy.passing.wait()
            time.sleep(self._proxy.delay)
            rule = self._proxy.rule_for(request)
            self._meet(rule, request) if rule else send(self._server, request)
        if self._deaf:
            self._client.close()
        elif not self._late:
            self.cut()

    def _meet(self, rule: Rule, request: bytes) -> None:
        self._several, self._reply = THEN in request, b""
        if rule.lose in (Lose.REPLY, Lose.REPLY_SILENTLY):
            self._rule = rule  # the hook runs when the reply has come
            send(self._server, request)
            return
        if rule.lose is Lose.TIMELINESS:
            self._late, self._rule = True, rule
            rule.send_late = lambda: send(self._server, request)
            rule.hook()
            reset(self._client)
        elif rule.lose is Lose.HEARING:
            self._deaf = True
            rule.hook()
        else:
            rule.hook()
            self._mute = self._mute or rule.lose is Lose.CONNECTIONS
            self.cut() if rule.lose is Lose.REQUEST else send(self._server, request)
            if rule.lose is Lose.CONNECTIONS:
                self._proxy.cut()
        rule.done.set()

    def pump_replies(self) -> None:
        for reply in received(self._server):
            if self._deaf:
                continue
            self._proxy.passing.wait()
            time.sleep(self._proxy.delay)
            self._answered = True
            if self._rule is not None and self._several:
                self._reply += reply
                if not is_whole(self._reply):  # a cut would keep the server from the rest
                    continue
            rule, self._rule = self._rule, None
            rule = rule or self._proxy.rule_for(reply, of_replies=True)
            if rule is not None:
                self._mute = True
                self._deaf = rule.lose is Lose.HEARING
                rule.answered.set()
                if not self._late:
                    rule.hook()
                if rule.lose is Lose.CONNECTIONS:
                    self._proxy.cut()
                elif rule.lose not in (Lose.REPLY_SILENTLY, Lose.HEARING) and not self._late:
                    self.cut()
                rule.done.set()
            if not (self._mute or self._proxy.deaf):
                self._pass_on(reply)
        if self._rule is not None:
            self._rule.answered.set()  # with the end of the session
        if not self._deaf:
            self.cut()

    def _pass_on(self, reply: bytes) -> None:
        if not self._proxy.trickle:
            send(self._client, reply)
            return
        with contextlib.suppress(OSError):
            for number in range(len(reply)):
                self._client.sendall(reply[number : number + 1])
                time.sleep(self._proxy.trickle)


def connect(upstream: tuple[str, int]) -> socket.socket:
    """Connect from the next port that is free."""
    while True:
        try:
            return socket.create_connection(upstream, source_address=("", next(_PORTS)))
        except OSError as error:
            if error.errno not in _TAKEN:
                raise


def received(side: socket.socket) -> Iterator[bytes]:
    """What arrives on a socket, until it ends or is reset from either thread."""
    with contextlib.suppress(OSError):
        while data := side.recv(65536):
            yield data


def send(side: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        side.sendall(data)


def reset(side: socket.socket) -> None:
    """Close with RST, as a crashed peer does; wakes the thread that is reading from it."""
    with contextlib.suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        side.shutdown(socket.SHUT_RD)
    side.close()
