"""Wrong requests get clear problems, and harm no other client."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from functools import partial

import httpx
import pytest

from tests.contrib.serve.conftest import Serve
from tests.contrib.serve.process import Client, Service, kind_of, new_token, path_of
from tests.support import SECONDS, Threads, eventually

SECRET = "5ec2e7" * 6  # 36 digits: not a token, but as secret

pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)


#: The same in each process of tests, so that the names of the tests are.
TOKEN = "0123456789abcdef" * 2


def body(**fields: object) -> bytes:
    return json.dumps({"token": TOKEN, "ttl": 30, **fields}).encode()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "JSON object"),
        (b"{", "JSON object"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
        (b'"token"', "JSON object"),
        (b"\xff\xfe{", "UTF-8"),
        (b"[" * 8000, "JSON object"),
        (b'{"a":' * 1500, "JSON object"),
        (b'{"ttl": NaN}', "JSON object"),
        (b'{"ttl": 1e999}', "number of seconds"),
        (b'{"ttl": ' + b"9" * 5000 + b"}", "JSON object"),
        (b'{"ttl": 1, "ttl": 1}', "once"),
        (b'{"ttl": 30}', "needs the field token"),
        (body(ttl=0), "from 0.1 to 86400"),
        (body(ttl=-1), "from 0.1 to 86400"),
        (body(ttl=86401), "from 0.1 to 86400"),
        (body(ttl="30"), "number of seconds"),
        (body(ttl=True), "number of seconds"),
        (body(ttl=None), "number of seconds"),
        (body(token=None), "32 hexadecimal"),
        (body(token=7), "32 hexadecimal"),
        (body(token=TOKEN + "0"), "32 hexadecimal"),
        (body(token="A" * 32), "32 hexadecimal"),
        (body(token=SECRET), "32 hexadecimal"),
        (body(token=TOKEN + "\n"), "32 hexadecimal"),
        (body(owner=""), "1 to 255"),
        (body(owner="x" * 256), "1 to 255"),
        (body(owner=["x"]), "1 to 255"),
        (body(owner="a\0b"), "NUL"),
        (b'{"token": "' + b"0" * 32 + b'", "owner": "\\ud800"}', "1 to 255"),
        (body(name="x"), "no others"),
        (body(**{SECRET: "x"}), "no others"),
    ],
    ids=lambda value: str(value)[-30:] if isinstance(value, bytes) else "",
)
def test_a_wrong_body(client: Client, sent: bytes, said: str) -> None:
    answer = client.http.put("/v1/leases/wrong", content=sent)
    assert (answer.status_code, kind_of(answer)) == (400, "invalid")
    assert said in answer.json()["detail"]
    assert SECRET not in answer.text
    assert client.show("wrong").json()["fence"] == 0


def test_a_renewal_has_no_owner(client: Client) -> None:
    answer = client.http.patch("/v1/leases/wrong", content=body(owner="x"))
    assert kind_of(answer) == "invalid"


@pytest.mark.parametrize("size", [8 * 1024 + 1, 50_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body(service: Service, size: int, chunked: bool) -> None:
    """The answer comes before the body has been sent, and the connection ends."""
    how = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
    with service.connect() as connection:
        connection.sendall(b"PUT /v1/leases/huge HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % how)
        answer = b""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for left in range(size, 0, -1000):
                part = b"x" * min(left, 1000)
                connection.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
            connection.sendall(b"0\r\n\r\n" if chunked else b"")
        with contextlib.suppress(ConnectionResetError):  # for what was sent and not read
            while part := connection.recv(65536):
                answer += part
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    answer = client.http.put("/v1/leases/huge", content=b" " * 8193)
    assert (answer.status_code, kind_of(answer)) == (413, "too-large")
    largest = body().ljust(8192)
    assert client.http.put("/v1/leases/large", content=largest).status_code == 201


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("/v1/leases/", "empty"),
        ("/v1/leases/a/b", "%2F"),
        ("/v1/leases/%", "%25"),
        ("/v1/leases/%zz", "%25"),
        ("/v1/leases/%e9", "UTF-8"),
        ("/v1/leases/%ed%a0%80", "UTF-8"),
        ("/v1/leases/%00", "NUL"),
        ("/v1/leases/" + "a" * 256, "255"),
        ("/v1/leases/" + "%F0%9F%94%92" * 256, "255"),
        (f"/v1/leases/a?token={SECRET}", "query"),
        (f"/v1/leases?{SECRET}=x", "query"),
        ("/v1/leases?prefix=a&prefix=b", "once"),
        ("/v1/leases?limit=0", "limit"),
        ("/v1/leases?limit=-1", "limit"),
        ("/v1/leases?limit=1e3", "limit"),
        ("/v1/leases?limit=%D9%A1", "limit"),
    ],
)
def test_a_wrong_path(client: Client, target: str, said: str) -> None:
    answer = client.send("GET", target)
    assert (answer.status_code, kind_of(answer)) == (400, "invalid")
    assert said in answer.json()["detail"]
    assert SECRET not in answer.text


@pytest.mark.parametrize("target", ["/", "/v1", "/v2/leases/a", "/V1/leases", "//v1/leases", "*"])
def test_a_path_that_is_not_there(client: Client, target: str) -> None:
    answer = client.send("PUT", target)
    assert (answer.status_code, kind_of(answer)) in [
        (404, "not-found"),
        (405, "method-not-allowed"),
    ]


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_is_not_there(client: Client, service: Service, method: str) -> None:
    if method == "BREW":
        answer = service.raw(b"BREW /v1/leases/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        return
    answered = client.send(method, path_of("a"))
    assert (answered.status_code, kind_of(answered)) == (405, "method-not-allowed")
    assert answered.headers["Allow"] == "DELETE, GET, HEAD, PATCH, PUT"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Lock-Token", "x")],
        [("Lock-Token", SECRET)],
        [("Lock-Token", "0" * 32), ("Lock-Token", "0" * 32)],
    ],
)
def test_a_release_needs_one_token(client: Client, headers: list[tuple[str, str]]) -> None:
    answer = client.send("DELETE", path_of("a"), headers=httpx.Headers(headers))
    assert kind_of(answer) == "invalid"
    assert "Lock-Token" in answer.json()["detail"]
    assert SECRET not in answer.text


@pytest.mark.parametrize("force", ["", "false", "1", "True"])
def test_force_is_true_or_left_out(client: Client, force: str) -> None:
    answer = client.send("DELETE", f"{path_of('a')}?force={force}")
    assert kind_of(answer) == "invalid"


@pytest.mark.parametrize("fence", ["", "0", "-1", "1.0", "x", "9" * 19, "9" * 40])
def test_a_fence_is_a_whole_number(client: Client, fence: str) -> None:
    answer = client.force("a", fence)
    assert (answer.status_code, kind_of(answer)) == (400, "invalid")
    assert "fence" in answer.json()["detail"]


def test_a_fence_is_for_force_only(client: Client) -> None:
    answer = client.send("DELETE", f"{path_of('a')}?fence=1", headers={"Lock-Token": new_token()})
    assert (answer.status_code, kind_of(answer)) == (400, "invalid")


def test_a_release_is_by_token_or_by_force(client: Client) -> None:
    headers = {"Lock-Token": new_token()}
    answer = client.send("DELETE", f"{path_of('a')}?force=true", headers=headers)
    assert kind_of(answer) == "invalid"


@pytest.mark.parametrize("wait", ["-1", "1.5", "x", "", "9" * 30, "\u0661"])
def test_a_wait_is_a_whole_number(client: Client, wait: str) -> None:
    headers = {b"Prefer": f"wait={wait}".encode()}
    answer = client.http.put("/v1/leases/a", content=body(), headers=headers)
    assert kind_of(answer) == "invalid"


@pytest.mark.parametrize(
    "prefer", ["respond-async, wait=0", "wait=0; foo=bar", "Wait = 0", "handling=lenient,wait=0"]
)
def test_other_preferences_are_ignored(client: Client, prefer: str) -> None:
    name = f"preferred {prefer}"
    answer = client.send("PUT", path_of(name), content=body(), headers={"Prefer": prefer})
    assert answer.headers["Preference-Applied"] == "wait=0"
    assert "Preference-Applied" not in client.put(f"{name} not", new_token()).headers


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x5\r\n",
        b"PUT /v1/leases/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n",
        b"PUT /v1/leases/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n",
        b"PUT /v1/leases/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n",
        b"GET /healthz\xff HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA\x00B: c\r\n",
        b"GET /healthz HTTP/9.9\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
    ],
)
def test_smuggled_requests_are_not_answered(service: Service, request_line: bytes) -> None:
    """What two servers could read in two ways is refused, and the connection ends."""
    inner = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = service.raw(request_line + b"\r\n0\r\n\r\n" + inner)
    assert answer.count(b"HTTP/1.1 ") <= 1, answer
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"openapi" not in answer


def test_pipelined_requests_are_refused(service: Service) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with service.connect() as connection:
        connection.sendall(one * 2)
        assert ended(connection)
    with service.connect() as connection:
        for _ in range(2):
            connection.sendall(one)
            answer = b""
            while not answer.endswith(b"ok\n"):
                answer += connection.recv(65536)


def test_a_wait_does_not_outlive_its_client_behind_a_second_request(
    service: Service, client: Client
) -> None:
    client.put("piped", new_token())
    said = len(service.said)
    sent = json.dumps({"token": new_token(), "ttl": 30}).encode()
    with service.connect() as connection:
        connection.sendall(
            b"PUT /v1/leases/piped HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(sent), sent)
        )
        eventually(partial(waited_for, client, "piped"))
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    eventually(lambda: not waited_for(client, "piped"))
    assert service.said[said:] == []


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"a"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ", b"a"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"A: b\r\n"),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ", b"a"),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
    ],
    ids=["url", "header", "headers", "trailer", "chunk"],
)
def test_a_request_without_an_end_is_ended(service: Service, begin: bytes, more: bytes) -> None:
    """It ends by its size, long before its time is over."""
    sent, most = 0, 16_000_000
    with (
        service.connect() as connection,
        contextlib.suppress(BrokenPipeError, ConnectionResetError),
    ):
        connection.sendall(begin)
        while sent < most:
            connection.sendall(more * 1000)
            sent += 1000 * len(more)
    assert sent < most


def test_a_websocket_is_refused(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(
            b"GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n"
        )
        assert b" 101 " not in connection.recv(65536)


def test_nothing_of_a_wrong_request_is_logged(service: Service, client: Client) -> None:
    client.http.put(f"/{SECRET}", content=SECRET)
    client.http.get("/v1/leases", params={"token": SECRET})
    client.send("PUT", path_of("a"), json={"token": SECRET})
    client.send("DELETE", path_of("a"), headers={"Lock-Token": SECRET})
    before = len(service.logged)
    client.http.get("/healthz")
    eventually(lambda: len(service.logged) > before)
    assert SECRET not in "".join(service.logged + service.said)


def test_a_slow_client_is_ended(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(b"PUT /v1/leases/slow HTTP/1.1\r\nHost: loc")
        assert ended(connection)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process have more open files than the usual 1,024."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, 2000), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_slow_clients_harm_nobody(serve: Serve, service: Service) -> None:
    """The limit of connections is for clients that send requests."""
    limited = serve((service.directory / "url").read_text(), "--connections", "50")
    slow: list[socket.socket] = []
    try:
        for number in range(1000):
            slow.append(limited.connect())
            with contextlib.suppress(OSError):
                slow[-1].sendall(b"PUT /v1/leases/slow HTTP/1.1\r\nHost: loc"[: number % 40])
        assert limited.client().put("beside slow clients", new_token()).status_code == 201
        assert all(map(ended, slow[:900]))
    finally:
        for connection in slow:
            connection.close()


def test_waiting_clients_are_not_ended_for_new_ones(
    serve: Serve, service: Service, threads: Threads
) -> None:
    limited = serve((service.directory / "url").read_text(), "--connections", "2")
    names, token, client = ("waited for", "waited for 2"), new_token(), service.client()
    waiting = []
    for name in names:
        client.put(name, token)
        waiting.append(threads.start(limited.client().put, name, new_token(), wait=60))
        eventually(partial(waited_for, client, name))
    with limited.connect() as third:
        assert ended(third)
    for name in names:
        client.delete(name, token)
    assert [one.result(SECONDS).status_code for one in waiting] == [201, 201]


def waited_for(client: Client, name: str) -> bool:
    return bool(client.show(name).json()["waiters"])


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True
