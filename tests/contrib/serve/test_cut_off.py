"""The client is cut off before and after each statement: its token settles what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic

import httpx
import pytest

from tests.conftest import SERVERS, NewDatabase
from tests.contrib.serve.conftest import Serve
from tests.contrib.serve.process import Client, Service, new_token
from tests.faults.conftest import GRANT, RELEASE, RENEW
from tests.faults.proxy import Lose, Proxy, Rule
from tests.faults.test_handover import ATTACH
from tests.support import SECONDS, Threads, eventually

NAME = "report"
STATEMENTS = {"put": GRANT, "patch": RENEW, "delete": RELEASE}
REQUESTS = {"put": b"PUT ", "patch": b"PATCH ", "delete": b"DELETE "}

Moment = Callable[["Between", bytes, bytes], Rule]

servers = pytest.mark.parametrize("kind", SERVERS)


class Between:
    """A service with a proxy on either side: before its database, and before its client."""

    def __init__(self, service: Service, back: Proxy, front: Proxy) -> None:
        self.service = service
        self.back = back
        self.front = front

    def answered(self, number: int) -> None:
        """Wait until this number of requests is in the access log."""
        eventually(lambda: len(self.service.logged) >= number)


def before_the_request(made: Between, request: bytes, statement: bytes) -> Rule:
    return made.front.lose(Lose.REQUEST, request)


def before_the_statement(made: Between, request: bytes, statement: bytes) -> Rule:
    return made.back.lose(Lose.NOTHING, statement, hook=made.front.cut)


def with_the_statement(made: Between, request: bytes, statement: bytes) -> Rule:
    return made.back.lose(Lose.REQUEST, statement, hook=made.front.cut)


def with_its_reply(made: Between, request: bytes, statement: bytes) -> Rule:
    return made.back.lose(Lose.REPLY, statement, hook=made.front.cut)


def before_the_answer(made: Between, request: bytes, statement: bytes) -> Rule:
    return made.front.lose(Lose.REPLY, request)


AT_A_STATEMENT = (before_the_statement, with_the_statement, with_its_reply, before_the_answer)
MOMENTS = (before_the_request, *AT_A_STATEMENT)


@contextmanager
def between(serve: Serve, url: str) -> Iterator[Between]:
    with Proxy(url) as back:
        service = serve(back.url)
        with Proxy(f"http://{service.address}") as front:
            yield Between(service, back, front)


def through(front: Proxy) -> Client:
    return Client(front.url.rstrip("/"))


def ask_again(ask: Callable[[], httpx.Response]) -> tuple[httpx.Response, int]:
    """Repeat a request as a client has to, while the service says that it cannot serve now.

    The statement without a reply may still be at its commit, with the name's row locked. Return the
    answer, and how many requests it took.
    """
    until, tries = monotonic() + SECONDS, 1
    while (answer := ask()).status_code == 503 and monotonic() < until:
        tries += 1
    return answer, tries


@servers
@pytest.mark.parametrize("call", STATEMENTS)
def test_a_request_is_repeated_with_its_token(
    serve: Serve, new_database: NewDatabase, kind: str, call: str
) -> None:
    """No second hold, fences in order, and nothing stays behind."""
    url = new_database(kind, migrated=True).url
    with between(serve, url) as made:
        direct = made.service.client()
        sent = fence = 0
        for moment in MOMENTS:
            token, rival = new_token(), new_token()
            if call != "put":
                fence = direct.put(NAME, token).json()["fence"]
                sent += 1
            made.back.cut()  # a new connection gets the text of a statement, not a name for it
            lost = moment(made, REQUESTS[call], STATEMENTS[call])
            client = through(made.front)
            with pytest.raises(httpx.TransportError):
                getattr(client, call)(NAME, token)
            client.close()
            assert lost.done.wait(SECONDS), moment
            again, tries = ask_again(partial(getattr(direct, call), NAME, token))
            sent += tries if moment is before_the_request else tries + 1
            made.answered(sent)
            if call == "delete":
                assert again.status_code in (204, 410), (moment, again.text)
                later = direct.put(NAME, rival)
            else:
                assert again.status_code in (200, 201), (moment, again.text)
                if call == "put":
                    assert again.json()["fence"] > fence
                    fence = again.json()["fence"]
                assert again.json()["fence"] == fence
                assert direct.put(NAME, rival).status_code == 409
                assert direct.delete(NAME, token).status_code == 204
                later = direct.put(NAME, rival)
                sent += 2
            assert later.status_code == 201, (moment, later.text)
            assert later.json()["fence"] > fence
            fence = later.json()["fence"]
            assert direct.delete(NAME, rival).status_code == 204
            sent += 2


@servers
@pytest.mark.parametrize("moment", AT_A_STATEMENT)
def test_a_waiting_client_is_cut_off_when_its_turn_comes(
    serve: Serve, new_database: NewDatabase, threads: Threads, kind: str, moment: Moment
) -> None:
    """Its token gets the name when it asks again, and no hold without a client stays in its way."""
    url = new_database(kind, migrated=True).url
    with between(serve, url) as made:
        direct = made.service.client()
        holding, token = new_token(), new_token()
        fence = direct.put(NAME, holding).json()["fence"]
        lost = moment(made, REQUESTS["put"], ATTACH[kind])
        client = through(made.front)

        def wait() -> None:
            with pytest.raises(httpx.TransportError):
                client.put(NAME, token, wait=60)

        waiting = threads.start(wait)
        eventually(lambda: bool(direct.show(NAME).json()["waiters"]))
        assert direct.delete(NAME, holding).status_code == 204
        waiting.result(SECONDS)
        client.close()
        assert lost.done.wait(SECONDS)
        again, _ = ask_again(partial(direct.put, NAME, token, wait=60))
        assert again.status_code in (200, 201), again.text
        assert again.json()["fence"] > fence
        assert direct.put(NAME, holding).status_code == 409
        assert direct.delete(NAME, token).status_code == 204
        assert direct.put(NAME, holding).status_code == 201
