"""The proxy's own faults, seen by a server that answers each request with its echo."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from tests.faults.proxy import SECONDS, Lose, Proxy

MOMENT = 0.2


class Echo:
    """A server of one connection at a time; ``seen`` is what reached it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.seen: list[bytes] = []
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            try:
                while request := client.recv(1000):
                    self.seen.append(request)
                    client.sendall(b"reply to " + request)
            except OSError:
                pass
        self.ended.set()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.listener.shutdown(socket.SHUT_RDWR)
    made.listener.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(f"postgresql://127.0.0.1:{echo.listener.getsockname()[1]}/x") as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connect(proxy) as made:
        yield made


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", make_url(proxy.url).port or 0), SECONDS)


def ask(client: socket.socket, request: bytes) -> bytes:
    client.sendall(request)
    return client.recv(1000)


def test_a_rule_waits_for_the_nth_request_with_its_marker(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    met: list[int] = []
    proxy.lose(Lose.NOTHING, b"b", hook=lambda: met.append(len(echo.seen)), nth=2)
    for request in (b"a", b"b", b"a", b"b", b"b"):
        assert ask(client, request) == b"reply to " + request
    assert met == [3]


def test_a_deaf_connection_acknowledges_and_passes_nothing_on(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    assert ask(client, b"a") == b"reply to a"
    deaf = proxy.lose(Lose.HEARING, b"b")
    client.settimeout(MOMENT)
    for request in (b"b", b"c"):
        with pytest.raises(TimeoutError):
            ask(client, request)
    assert deaf.done.wait(SECONDS)
    client.close()
    assert not echo.ended.wait(MOMENT), "the server was told that the client went"
    with connect(proxy) as other:
        assert ask(other, b"d") == b"reply to d"
    assert echo.seen == [b"a", b"d"]


def test_a_reset_of_all_connections_comes_after_the_request(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    with connect(proxy) as other:
        assert ask(other, b"a") == b"reply to a"
        reset = proxy.lose(Lose.CONNECTIONS, b"b")
        with pytest.raises(ConnectionError):
            ask(client, b"b")
        assert reset.done.wait(SECONDS)
        with pytest.raises(ConnectionError):
            ask(other, b"c")
    assert b"c" not in echo.seen


def test_a_delay_is_of_each_way(proxy: Proxy, client: socket.socket) -> None:
    assert ask(client, b"a") == b"reply to a"
    proxy.delay = MOMENT
    start = time.monotonic()
    assert ask(client, b"b") == b"reply to b"
    assert time.monotonic() - start >= 2 * MOMENT


def test_the_ports_by_which_the_server_knows_its_clients(
    proxy: Proxy, client: socket.socket
) -> None:
    assert ask(client, b"a") == b"reply to a"
    assert len(proxy.ports) == 1
    assert client.getsockname()[1] not in proxy.ports
