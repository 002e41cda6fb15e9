"""The description at /openapi.json, checked against the running service by schemathesis."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dblock.contrib.serve.tokens_file import add, caller
from tests.conftest import NewDatabase
from tests.contrib.serve.conftest import Serve
from tests.contrib.serve.process import Client
from tests.support import SECONDS, examples

CONFIG = Path(__file__).with_name("schemathesis.toml")


def test_the_service_is_as_described(
    serve: Serve, new_database: NewDatabase, tmp_path: Path
) -> None:
    """Generated requests, right and wrong, get answers that the description has.

    schemathesis runs as a program: its plugin for pytest does not know the newest pytest.
    """
    file = tmp_path / "tokens.toml"
    bearer = add(str(file), caller("schemathesis", ("",), ("read", "hold", "admin")))
    service = serve(new_database("sqlite", migrated=True).url, "--tokens", str(file))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)),
            *("run", f"http://{service.address}/openapi.json", "--generation-deterministic"),
            *("--max-examples", str(examples(6)), "--no-color"),
            *("--header", f"Authorization: Bearer {bearer}"),
            *("--exclude-path", "/v1/events"),  # an answer without an end
            *("--request-timeout", str(SECONDS)),  # the longest wait of a request is 60 s
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert not service.said[2:], "the service has logged errors"


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_the_description_has_every_lease_request(client: Client) -> None:
    described = client.http.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert set(described["paths"]["/v1/leases/{name}"]) == {"put", "patch", "delete", "get"}
    put = described["paths"]["/v1/leases/{name}"]["put"]["responses"]
    assert {"200", "201", "400", "401", "403", "409", "413", "503", "504"} <= set(put)
    assert "security" not in described  # no tokens are used here
