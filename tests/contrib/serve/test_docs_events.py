"""The snippets of docs/service.md about events and metrics, run as a reader would run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from dblock import Locks
from tests.conftest import NewDatabase
from tests.contrib.serve.running import Running, token
from tests.contrib.serve.test_docs import NODE, block


@contextmanager
def printed(command: list[str], **env: str) -> Iterator[Iterator[str]]:
    """The lines that a command prints, until it is ended."""
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout)
        finally:
            process.kill()


def lead(locks: Locks, lines: Iterator[str], begins: str) -> list[str]:
    """Lead once a client listens, and return what it prints until it has the value."""
    seen = [next(line for line in lines if begins in line)]
    with locks.election("scheduler").campaign() as term:
        term.proclaim({"address": "10.0.0.7:8000"})
        for line in lines:
            seen.append(line)
            if "10.0.0.7" in line:
                return seen
    raise AssertionError(seen)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_events_with_curl(new_database: NewDatabase) -> None:
    url = new_database("sqlite", migrated=True).url
    with Running(url) as service, Locks(url) as locks:
        command = block("sh events").replace("http://127.0.0.1:8700", service.address)
        with printed(["sh", "-c", f"exec {command}"]) as lines:
            seen = lead(locks, lines, "data: ")
    assert "event: granted\n" in seen
    assert seen[-2] == "event: proclaimed\n"
    value = json.loads(seen[-1].removeprefix("data: "))
    assert (value["name"], value["value"]) == ("scheduler", {"address": "10.0.0.7:8000"})


@pytest.mark.skipif(NODE is None, reason="no Node.js")
def test_events_with_node(new_database: NewDatabase, tmp_path: Path) -> None:
    url, file = new_database("sqlite", migrated=True).url, tmp_path / "tokens.toml"
    bearer = token(file, "reader", ["scheduler"], ["read"])
    (tmp_path / "events.mjs").write_text(block("js events"))
    with Running(url, file) as service, Locks(url) as locks:
        env = {"DBLOCK_SERVICE": service.address, "DBLOCK_TOKEN": bearer}
        with printed([str(NODE), str(tmp_path / "events.mjs")], **env) as lines:
            seen = "".join(lead(locks, lines, "state {"))
    assert seen.index("granted {") < seen.index("proclaimed {")


def test_what_prometheus_reads() -> None:
    (job,) = yaml.safe_load(block("yaml scrape"))["scrape_configs"]
    # The path and the kind of the token are Prometheus's own: /metrics and Bearer.
    assert job.keys() == {"job_name", "authorization", "static_configs"}
    assert job["authorization"].keys() == {"credentials_file"}
