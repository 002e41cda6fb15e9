"""The service, its clients and its database come and go: no hold is lost, and none is left."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from dblock import Locks
from tests.conftest import KINDS, NewDatabase, OwnServers
from tests.contrib.serve.conftest import Serve
from tests.contrib.serve.process import Service, kind_of, new_token, path_of
from tests.servers.postgresql import PostgreSQL
from tests.support import SECONDS, Threads, eventually

NAME = "report"


def waiting(service: Service, token: str, ttl: float = 30) -> socket.socket:
    """A client that has sent its request, and waits."""
    body = json.dumps({"token": token, "ttl": ttl, "owner": "the waiter"})
    connection = service.connect()
    head = f"PUT {path_of(NAME)} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


def waiters(service: Service) -> int:
    return len(service.client().show(NAME).json()["waiters"])


def test_a_hold_outlives_the_service(serve: Serve, new_database: NewDatabase) -> None:
    url = new_database("postgresql", migrated=True).url
    first, second = serve(url), serve(url)
    token = new_token()
    fence = first.client().put(NAME, token).json()["fence"]
    first.kill()
    client = second.client()
    assert client.put(NAME, new_token()).status_code == 409
    renewed = client.patch(NAME, token)
    assert (renewed.status_code, renewed.json()["fence"]) == (200, fence)
    assert client.put(NAME, token).json()["fence"] == fence
    assert client.delete(NAME, token).status_code == 204


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_goes_away_leaves_the_queue(
    serve: Serve, new_database: NewDatabase, kind: str
) -> None:
    service = serve(new_database(kind, migrated=True).url)
    client = service.client()
    token = new_token()
    client.put(NAME, token)
    with waiting(service, new_token()):
        eventually(lambda: waiters(service) == 1)
    eventually(lambda: waiters(service) == 0)
    eventually(lambda: any('"status":499' in line for line in service.logged))
    client.delete(NAME, token)
    assert client.show(NAME).json()["state"] == "free"


def test_a_client_that_comes_back_has_what_it_was_told(
    serve: Serve, new_database: NewDatabase, threads: Threads
) -> None:
    """Its first request ends after its second, with the same token, has got the name."""
    url = new_database("postgresql", migrated=True).url
    service, second = serve(url), serve(url)
    client = service.client()
    holding, token = new_token(), new_token()
    for _ in range(10):
        assert client.put(NAME, holding).status_code == 201
        first = waiting(service, token, ttl=2)
        eventually(lambda: waiters(service) == 1)
        again = threads.start(second.client().put, NAME, token, wait=60)
        threads.start(first.close)
        client.delete(NAME, holding)
        assert again.result(SECONDS).status_code in (200, 201)
        eventually(lambda: waiters(service) == 0)
        assert client.put(NAME, holding).status_code == 409
        assert client.delete(NAME, token).status_code == 204
        first.close()


def test_when_it_stops_waiters_are_answered_and_others_are_served(
    serve: Serve, new_database: NewDatabase
) -> None:
    url = new_database("sqlite", migrated=True).url
    service, second = serve(url), serve(url)
    second.client().put(NAME, new_token())
    with waiting(service, new_token()) as connection:
        eventually(lambda: waiters(second) == 1)
        service.stop()
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in answer
        assert b"urn:dblock:problem:unavailable" in answer
    assert waiters(second) == 0


def test_a_database_that_is_away_and_comes_back(
    serve: Serve, own_server: OwnServers, new_database: NewDatabase
) -> None:
    server = own_server(lambda: PostgreSQL(durable=True))
    service = serve(new_database("postgresql", migrated=True, server=server).url)
    client = service.client()
    token = new_token()
    fence = client.put(NAME, token, ttl=600).json()["fence"]
    server.stop()
    client.put(NAME, new_token())  # on a connection that is open yet: 504 or 503
    refused = client.put(NAME, new_token())
    assert (refused.status_code, kind_of(refused)) == (503, "unavailable")
    assert refused.headers["Retry-After"] == "1"
    assert client.http.get("/healthz").status_code == 200
    eventually(lambda: client.http.get("/readyz").status_code == 503)
    for text in (refused.text, client.http.get("/readyz").text):
        assert str(server.port) not in text
    server.start()
    eventually(lambda: client.http.get("/readyz").status_code == 200)
    assert client.patch(NAME, token, ttl=600).json()["fence"] == fence
    assert client.put(NAME, new_token()).status_code == 409


def test_a_database_that_is_away_at_the_start(
    serve: Serve, own_server: OwnServers, new_database: NewDatabase
) -> None:
    server = own_server(PostgreSQL)
    url = new_database("postgresql", migrated=True, server=server).url
    server.stop()
    service = serve(url)
    assert "cannot be reached yet" in "".join(service.said)
    assert service.client().http.get("/readyz").status_code == 503
    server.start()
    client = service.client()
    eventually(lambda: client.put(NAME, new_token()).status_code == 201)


def test_a_lost_reply_is_told_and_the_same_token_settles_it(
    serve: Serve, own_server: OwnServers, new_database: NewDatabase
) -> None:
    """The server is frozen while the statement is under way."""
    server = own_server(PostgreSQL)
    url = new_database("postgresql", migrated=True, server=server).url
    service = serve(url)
    client = service.client()
    client.put("before", new_token())
    server.pause()
    token = new_token()
    answer = client.put(NAME, token)
    assert kind_of(answer) in ("outcome-unknown", "unavailable")
    server.resume()
    eventually(lambda: client.put(NAME, token).status_code in (200, 201))
    with Locks(url) as locks:
        assert locks.show(NAME).held


def test_tables_that_are_missing(serve: Serve, new_database: NewDatabase) -> None:
    database = new_database("sqlite", migrated=True)
    service = serve(database.url)
    Path(database.url.removeprefix("sqlite:///")).unlink()
    answer = service.client().put(NAME, new_token())
    assert (answer.status_code, kind_of(answer)) == (503, "unavailable")
