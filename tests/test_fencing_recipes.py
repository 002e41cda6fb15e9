"""The recipes of docs/fencing.md for what is no database: each is run against what it is for."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Lock, Thread
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from sqlalchemy import create_engine, text

from dblock import StaleFence
from dblock.fencing import gate
from tests.conftest import KINDS, NewDatabase
from tests.support import Threads
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "fencing.md"


def recipe(language: str, **names: Any) -> dict[str, Any]:
    """What a block of the page defines."""
    (block,) = blocks(PAGE, language)
    exec(compile(block, str(PAGE), "exec"), names)
    return names


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL at which a handler answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_by_hand(kind: str, new_database: NewDatabase) -> None:
    engine = create_engine(new_database(kind).url)
    (statement,) = blocks(PAGE, f"sql gate {kind}")
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
        for fence, name in enumerate(("a", "A", "a ", "é" * 255), 5):
            gate(connection, name, fence)
        with pytest.raises(StaleFence):
            gate(connection, "a", 4)
    engine.dispose()


# --- HTTP ----------------------------------------------------------------------------------------


def test_http(new_database: NewDatabase) -> None:
    warehouse = create_engine(new_database("postgresql").url)
    (table,) = blocks(PAGE, "sql gate postgresql")
    with warehouse.begin() as connection:
        connection.execute(text(table))
        connection.execute(text("CREATE TABLE report AS SELECT ''::bytea AS body"))
    reports = recipe("python http server", warehouse=warehouse)["Reports"]
    reports.log_message = lambda *told: None
    put = recipe("python http client")["put_report"]

    def stored() -> bytes:
        with warehouse.connect() as connection:
            return bytes(connection.execute(text("SELECT body FROM report")).scalar_one())

    with serving(reports) as url:
        put(url, b"first", 6)
        put(url, b"first again", 6)
        put(url, b"second", 7)
        with pytest.raises(StaleFence) as caught:
            put(url, b"late", 6)
        assert caught.value.fence == 6
        assert stored() == b"second"
        without = urllib.request.Request(url, b"unfenced", method="PUT")
        with pytest.raises(urllib.error.HTTPError, match="428") as refused:
            urllib.request.urlopen(without)
        refused.value.close()
        assert stored() == b"second"
    warehouse.dispose()


# --- S3 ------------------------------------------------------------------------------------------


class Bucket(BaseHTTPRequestHandler):
    """Conditional writes as S3 has them, whose ETag is that of the body alone."""

    objects: ClassVar[dict[str, bytes]]
    lock: ClassVar[Lock]

    def do_GET(self) -> None:
        with self.lock:
            body = self.objects.get(self.path)
        if body is None:
            self.answer(404)
        else:
            self.answer(200, body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            there = self.objects.get(self.path)
            wanted, none = self.headers["If-Match"], self.headers["If-None-Match"]
            if (none and there is not None) or (wanted and (not there or wanted != etag(there))):
                return self.answer(412)
            self.objects[self.path] = body
        return self.answer(200, body)

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("ETag", etag(body))
        self.send_header("Content-Length", str(len(body) if self.command == "GET" else 0))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class NoSuchKey(ClientError): ...


HEADERS = {"IfMatch": "If-Match", "IfNoneMatch": "If-None-Match"}
REFUSALS = {404: NoSuchKey("NoSuchKey"), 412: ClientError("PreconditionFailed")}


class Client:
    """The part of boto3's that the recipe calls, over HTTP."""

    exceptions = SimpleNamespace(NoSuchKey=NoSuchKey)

    def __init__(self, url: str) -> None:
        self._url = url
        self.after_get: Callable[[], None] = lambda: None

    def get_object(self, **given: Any) -> dict[str, Any]:
        try:
            return self._send("GET", given)
        finally:
            self.after_get()

    def put_object(self, **given: Any) -> None:
        self._send("PUT", given)

    def _send(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        url = f"{self._url}/{given.pop('Bucket')}/{given.pop('Key')}"
        body = given.pop("Body", None)
        headers = {HEADERS[name]: value for name, value in given.items()}
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return {"ETag": answer.headers["ETag"], "Body": io.BytesIO(answer.read())}
        except urllib.error.HTTPError as error:
            error.close()
            raise REFUSALS[error.code] from None


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    botocore = cast(Any, ModuleType("botocore.exceptions"))
    botocore.ClientError = ClientError
    monkeypatch.setitem(sys.modules, "botocore.exceptions", botocore)
    return cast(Callable[..., None], recipe("python s3")["publish"])


@pytest.fixture
def bucket() -> Iterator[str]:
    Bucket.objects, Bucket.lock = {}, Lock()
    with serving(Bucket) as url:
        yield url


def read(url: str) -> bytes:
    """What a reader gets, who follows the pointer."""
    pointer = json.loads(Bucket.objects["/b/report"])
    assert pointer["key"] == f"report/{pointer['fence']}"
    return Bucket.objects[f"/b/{pointer['key']}"]


def test_s3(bucket: str, publish: Callable[..., None]) -> None:
    s3 = Client(bucket)
    for fence, body in ((5, b"one"), (5, b"again"), (8, b"two")):
        publish(s3, "b", "report", body, fence)
        assert read(bucket) == body
    with pytest.raises(StaleFence) as caught:
        publish(s3, "b", "report", b"late", 7)
    assert (caught.value.fence, caught.value.newest) == (7, 8)
    assert read(bucket) == b"two"


@pytest.mark.parametrize("before", [None, 5], ids=["new", "known"])
def test_s3_between_the_look_and_the_write(
    bucket: str, publish: Callable[..., None], before: int | None
) -> None:
    """Also if the later holder writes the very same data."""
    s3, other = Client(bucket), Client(bucket)
    if before is not None:
        publish(other, "b", "report", b"same", before)
    fences = [8]

    def come_between() -> None:
        if fences:
            publish(other, "b", "report", b"same", fences.pop())

    s3.after_get = come_between
    with pytest.raises(StaleFence):
        publish(s3, "b", "report", b"late", 7)
    assert read(bucket) == b"same"
    fences.append(9)
    publish(s3, "b", "report", b"newer", 10)
    assert read(bucket) == b"newer"


# --- files ---------------------------------------------------------------------------------------


def test_a_file(tmp_path: Path) -> None:
    replace, path = recipe("python files")["replace"], tmp_path / "report"
    for fence, data in ((5, b"one"), (5, b"again"), (8, b"two")):
        replace(path, data, fence)
        assert path.read_bytes() == data
    with pytest.raises(StaleFence) as caught:
        replace(path, b"late", 7)
    assert (caught.value.fence, caught.value.newest) == (7, 8)
    assert path.read_bytes() == b"two"


def test_a_file_of_which_only_the_fence_was_replaced(tmp_path: Path) -> None:
    """As a crash may leave it."""
    names, path = recipe("python files"), tmp_path / "report"
    swap = names["swap"]
    names["replace"](path, b"one", 5)

    def crash(at: Path, data: bytes) -> None:
        if at == path:
            raise KeyboardInterrupt
        swap(at, data)

    names["swap"] = crash
    with pytest.raises(KeyboardInterrupt):
        names["replace"](path, b"two", 8)
    names["swap"] = swap
    assert path.read_bytes() == b"one"
    with pytest.raises(StaleFence):
        names["replace"](path, b"late", 7)
    names["replace"](path, b"three", 8)
    assert path.read_bytes() == b"three"


def test_a_file_that_many_replace(tmp_path: Path, threads: Threads) -> None:
    replace, path = recipe("python files")["replace"], tmp_path / "report"
    together = Barrier(8)

    def write(fence: int) -> None:
        together.wait()
        with contextlib.suppress(StaleFence):
            replace(path, str(fence).encode(), fence)

    fences = list(range(1, 9))
    for _ in range(10):
        random.shuffle(fences)
        for fence in fences:
            threads.start(write, fence)
        threads.join()
        assert path.read_bytes() == b"8"
        for left in tmp_path.iterdir():
            left.unlink()
