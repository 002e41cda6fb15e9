"""The commands ``dblock serve`` and ``dblock token``: their arguments, and what is refused."""

from __future__ import annotations

import contextlib
import socket
import stat
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from dblock.cli import exits
from dblock.contrib.serve.bind import Bind
from tests.cli.conftest import Here
from tests.conftest import Database, NewDatabase
from tests.contrib.serve.process import Service, new_token, path_of
from tests.support import SECONDS


@pytest.mark.parametrize(
    ("text", "host", "port", "local"),
    [
        ("127.0.0.1:8700", "127.0.0.1", 8700, True),
        ("127.7.7.7:1", "127.7.7.7", 1, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:80", "::1", 80, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),
        ("[::]:80", "::", 80, False),
        ("10.0.0.5:65535", "10.0.0.5", 65535, False),
        ("localhost.example:80", "localhost.example", 80, False),
    ],
)
def test_where_to_listen(text: str, host: str, port: int, local: bool) -> None:
    bind = Bind.parse(text)
    assert (bind.host, bind.port, bind.local) == (host, port, local)


@pytest.mark.parametrize(
    "text", ["", "8700", ":8700", "a:", "a:b", "a:-1", "::1:80", "a:65536", "unix:", "a:\u0661"]
)
def test_what_is_no_place_to_listen(here: Here, text: str) -> None:
    code, _, err = here("serve", "--bind", text)
    assert code == exits.USAGE
    assert err.startswith("dblock: --bind: ")


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0", "10.1.2.3:0", "example.org:80"])
def test_without_tokens_no_other_host_can_connect(here: Here, bind: str) -> None:
    code, _, err = here("serve", "--bind", bind)
    assert code == exits.USAGE
    assert "--tokens is required" in err


def test_a_file_of_tokens_that_is_wrong(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    for said in ("No such file", "has the fields"):
        code, _, err = here("serve", "--tokens", str(file))
        assert code == exits.USAGE
        assert said in err
        file.write_text("[[token]]\n")


def test_a_key_needs_a_certificate(here: Here) -> None:
    assert here("serve", "--key", "x")[0] == exits.USAGE


def test_a_certificate_that_is_not_there(here: Here, tmp_path: Path) -> None:
    code, _, err = here("serve", "--bind", "127.0.0.1:0", "--certificate", str(tmp_path / "x"))
    assert code == exits.USAGE
    assert "--certificate" in err


def test_a_port_that_is_taken(here: Here) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = here("serve", "--bind", f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == exits.CONFIG
    assert "cannot listen" in err


def test_tables_that_are_missing(here: Here, new_database: NewDatabase) -> None:
    code, _, err = here.on(new_database("sqlite"))("serve", "--bind", "127.0.0.1:0")
    assert code == exits.CONFIG
    assert "dblock upgrade" in err


def test_a_token(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    arguments = ("token", "billing", "--tokens", str(file), "--names", "billing/")
    code, out, err = here(*arguments)
    assert (code, err) == (exits.OK, "")
    assert out.startswith("dblock_")
    assert out.strip() not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    code, out, err = here(*arguments)
    assert (code, out) == (exits.USAGE, "")
    assert "choose another" in err


def test_a_unix_socket(tmp_path: Path, new_database: NewDatabase) -> None:
    """What a killed process has left is replaced, another's is not."""
    url = new_database("sqlite", migrated=True).url
    path = tmp_path / "http.sock"
    for _ in range(2):
        service = Service(url, bind=f"unix:{path}")
        try:
            assert not path.stat().st_mode & 0o022
            transport = httpx.HTTPTransport(uds=str(path), verify=False)
            with httpx.Client(transport=transport) as client:
                body = {"token": new_token(), "ttl": 0.2}
                answer = client.put("http://any/v1/leases/a", json=body)
                assert answer.status_code in (201, 409)
            with pytest.raises(OSError, match="another process listens there"):
                Bind.parse(f"unix:{path}").listen()
            service.kill()
        finally:
            service.close()
    other = tmp_path / "file"
    other.write_text("")
    with pytest.raises(FileExistsError):
        Bind.parse(f"unix:{other}").listen()


def test_the_default_database(tmp_path: Path, db: Database) -> None:
    """The same URL as all commands take, with the driver for asyncio."""
    service = Service(db.url)
    try:
        assert service.client().put("a", new_token()).status_code == 201
        assert "listening on 127.0.0.1:" in service.said[-1]
        assert service.stop() == 0
        service.ended()
        assert '"status":201' in service.logged[-1]
    finally:
        service.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_stop_removes_its_own_unix_socket(
    tmp_path: Path, new_database: NewDatabase, replaced: bool
) -> None:
    path = tmp_path / "http.sock"
    service = Service(new_database("sqlite", migrated=True).url, bind=f"unix:{path}")
    try:
        if replaced:
            path.unlink()
            path.write_text("a later one")
        assert service.stop() == 0
        assert path.exists() == replaced
    finally:
        service.close()


def test_a_client_that_does_not_begin_tls_is_ended(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    certificate = str(tmp_path / "cert.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-keyout", certificate, "-out", f"{certificate}.crt"),
        ],
        check=True,
        capture_output=True,
    )
    url = new_database("sqlite", migrated=True).url
    service = Service(url, "--certificate", f"{certificate}.crt", "--key", certificate)
    began = time.monotonic()
    try:
        with service.connect() as silent:
            with httpx.Client(verify=False, timeout=SECONDS) as client:
                answer = client.get(f"https://{service.address}/healthz")
                assert answer.status_code == 200
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(100) == b""
        assert time.monotonic() - began < 50  # 60 s are the event loop's own limit
        assert service.stop() == 0
        assert "Traceback" not in "".join(service.ended())
    finally:
        service.close()


def test_the_longest_ttl_is_the_default_if_it_is_shorter(new_database: NewDatabase) -> None:
    service = Service(new_database("sqlite", migrated=True).url, "--max-ttl", "10s")
    try:
        client, body = service.client(), {"token": new_token()}
        for method in ("PUT", "PATCH"):
            assert 0 < client.send(method, path_of("a"), json=body).json()["expires_in"] < 10
        described = client.http.get("/openapi.json").json()
        put = described["paths"]["/v1/leases/{name}"]["put"]["requestBody"]
        (content,) = put["content"].values()
        assert content["schema"]["properties"]["ttl"]["default"] == 10
    finally:
        service.close()
