"""The snippets of docs/service.md, run as a reader would run them."""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml
from fastapi import FastAPI

from dblock.__main__ import app as command_line
from dblock.contrib.serve.tokens_file import add, caller
from tests.conftest import NewDatabase
from tests.contrib.serve.conftest import Serve
from tests.contrib.serve.process import Client, Service, new_token
from tests.support import SECONDS, eventually
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "service.md"
NODE = shutil.which("node")


def block(language: str) -> str:
    (found,) = blocks(PAGE, language)
    return found


def parsed(arguments: list[str]) -> None:
    """Let click read a command of dblock, without running it."""
    assert Path(arguments[0]).name == "dblock"
    name, *rest = arguments[1:]
    command = command_line.commands[name]
    assert isinstance(command, click.Command)
    command.make_context(name, rest)


@pytest.fixture
def served(serve: Serve, new_database: NewDatabase, tmp_path: Path) -> tuple[Service, str]:
    """A service with tokens, and one of them."""
    file = tmp_path / "tokens.toml"
    bearer = add(str(file), caller("reports", ("report",), ("read", "hold", "admin")))
    service = serve(new_database("sqlite", migrated=True).url, "--tokens", str(file))
    return service, bearer


def environment(service: Service, bearer: str) -> dict[str, str]:
    return {
        **os.environ,
        "DBLOCK_SERVICE": f"http://{service.address}",
        "DBLOCK_TOKEN": bearer,
    }


def test_the_commands_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("DBLOCK_")]:
        monkeypatch.delenv(variable)
    for line in (block("sh start") + block("sh token")).splitlines():
        parsed(shlex.split(line))
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block("ini service"))
    arguments = shlex.split(unit["Service"]["ExecStart"])
    where = arguments.index("--url-file")
    parsed(arguments[:where] + arguments[where + 2 :])
    deployment, service = yaml.safe_load_all(block("yaml manifest"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    parsed(container["args"])
    assert service["spec"]["ports"][0]["port"] == container["ports"][0]["containerPort"]


def test_the_quick_start(serve: Serve, new_database: NewDatabase) -> None:
    service = serve(new_database("sqlite", migrated=True).url)
    script = block("sh try").replace("127.0.0.1:8700", service.address)
    done = subprocess.run(
        ["sh", "-e", "-c", script], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    said = re.search(r"prints `(\{.*?\})`", PAGE.read_text())
    assert said is not None
    first, _, rest = done.stdout.partition("}")
    granted, printed = json.loads(first + "}"), json.loads(said[1])
    assert granted.keys() == printed.keys()
    assert granted["fence"] == printed["fence"]
    assert '"holder":"me"' in rest
    assert service.client().show("report").json()["state"] == "free"


class Shell:
    """The script of the page, with a job of the test's."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder, self._env = folder, env
        self._script = block("sh recipe")

    def start(self, job: str, every: str = "sleep 10") -> subprocess.Popen[str]:
        made = self._folder / "make-report"
        made.write_text(f"#!/bin/sh\n{job}\n")
        made.chmod(0o755)
        return subprocess.Popen(
            ["sh", "-c", self._script.replace("sleep 10", every)],
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


@contextlib.contextmanager
def held_by_script(
    served: tuple[Service, str], folder: Path, job: str
) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """The script while it holds the lease, which it renews all the time; its group ends with it."""
    service, bearer = served
    client = service.client(bearer)
    script = Shell(folder, environment(service, bearer)).start(job, every="sleep 0.1")
    try:
        eventually(lambda: client.show("report").json()["state"] == "held")
        yield client, script
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def test_the_shell_script(served: tuple[Service, str], tmp_path: Path) -> None:
    service, bearer = served
    client = service.client(bearer)
    shell = Shell(tmp_path, environment(service, bearer))
    assert finished(shell.start("echo made $1")) == (0, "made 1\n", "")
    assert client.show("report").json()["state"] == "free"
    token = new_token()
    client.put("report", token)
    code, out, err = finished(shell.start("echo made $1"))
    assert (code, out, err) == (75, "", "another process makes the report\n")
    client.delete("report", token)
    assert finished(shell.start("exit 3"))[0] == 3


def test_the_shell_script_stops_its_job_when_the_lease_is_lost(
    served: tuple[Service, str], tmp_path: Path
) -> None:
    with held_by_script(served, tmp_path, "exec sleep 600") as (client, script):
        client.force("report")
        assert finished(script)[0] == 128 + signal.SIGTERM


#: A job that ends when its test says so.
UNTIL_READY = "until [ -e ready ]; do sleep 0.1; done"


def test_the_shell_script_goes_on_when_one_renewal_fails(
    served: tuple[Service, str], tmp_path: Path
) -> None:
    with held_by_script(served, tmp_path, UNTIL_READY) as (_, script):
        served[0].kill()
        assert script.stderr is not None
        assert script.stderr.readline().startswith("curl: ")
        assert script.stderr.readline().startswith("curl: ")
        (tmp_path / "ready").touch()
        assert finished(script)[0] == 0


def test_the_shell_script_renews_no_longer_than_its_job(
    served: tuple[Service, str], tmp_path: Path
) -> None:
    """The renewer has the standard error of the script, so that is open until the renewer ends."""
    with held_by_script(served, tmp_path, UNTIL_READY) as (client, script):
        first = client.show("report").json()["expires_at"]
        eventually(lambda: client.show("report").json()["expires_at"] > first)
        script.kill()
        (tmp_path / "ready").touch()
        assert finished(script)[0] == -signal.SIGKILL


def test_the_shell_script_tells_that_nobody_answers(tmp_path: Path) -> None:
    env = {**os.environ, "DBLOCK_SERVICE": "http://127.0.0.1:1", "DBLOCK_TOKEN": "x"}
    assert finished(Shell(tmp_path, env).start("echo made $1"))[0] == 69


JOB = """
import { withLease } from "./lease.mjs";
try {
  const options = { ttl: 3, wait: Number(process.argv[2]) };
  await withLease("report", options, async ({ fence, signal }) => {
    console.log(`made ${fence}`);
    if (process.argv[3]) await new Promise((_, stop) =>
      signal.addEventListener("abort", () => stop(signal.reason)) || setTimeout(stop, 600000));
  });
} catch (error) {
  console.log(error.status ?? "no status", error.message);
  process.exit(75);
}
"""


DEAF = """
import { withLease } from "./lease.mjs";
const work = ({ signal }) => new Promise((done) =>
  signal.addEventListener("abort", () => { console.log("aborted"); done("result"); }));
await withLease("report", { ttl: 3 }, work).then(
  () => console.log("done"), () => console.log("refused"));
"""


class Node:
    """The module of the page, in a program of the test's."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder, self._env = folder, env
        (folder / "lease.mjs").write_text(block("js recipe"))
        (folder / "job.mjs").write_text(JOB)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        assert NODE is not None
        return subprocess.Popen(
            [NODE, "job.mjs", *arguments],
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


needs_node = pytest.mark.skipif(NODE is None, reason="Node.js is not installed: tests skipped")


@needs_node
def test_node(served: tuple[Service, str], tmp_path: Path) -> None:
    service, bearer = served
    client = service.client(bearer)
    node = Node(tmp_path, environment(service, bearer))
    assert finished(node.start("0")) == (0, "made 1\n", "")
    assert client.show("report").json()["state"] == "free"
    token = new_token()
    client.put("report", token)
    code, out, _ = finished(node.start("0"))
    assert code == 75
    assert out.startswith("409 The name was not free")
    waiting = node.start("60")
    eventually(lambda: bool(client.show("report").json()["waiters"]))
    client.delete("report", token)
    assert finished(waiting)[:2] == (0, "made 3\n")


@needs_node
def test_node_renews_and_stops_when_the_lease_is_lost(
    served: tuple[Service, str], tmp_path: Path
) -> None:
    service, bearer = served
    client = service.client(bearer)
    node = Node(tmp_path, environment(service, bearer))
    job = node.start("0", "long")
    try:
        eventually(lambda: client.show("report").json()["state"] == "held")
        first = client.show("report").json()["expires_at"]
        eventually(lambda: client.show("report").json()["expires_at"] > first)
        client.force("report")
        code, out, _ = finished(job)
        assert (code, out.splitlines()[0]) == (75, "made 1")
        assert "410" in out or "over" in out
    finally:
        job.kill()


@needs_node
def test_node_stops_when_nobody_answers(served: tuple[Service, str], tmp_path: Path) -> None:
    service, bearer = served
    node = Node(tmp_path, environment(service, bearer))
    job = node.start("0", "long")
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "made 1\n"
        service.kill()
        code, out, _ = finished(job)
        assert (code, out) == (75, "no status the lease is over\n")
    finally:
        job.kill()


@needs_node
def test_node_tells_of_a_loss_that_the_work_has_not_heard_of(
    served: tuple[Service, str], tmp_path: Path
) -> None:
    service, bearer = served
    client = service.client(bearer)
    node = Node(tmp_path, environment(service, bearer))
    (tmp_path / "job.mjs").write_text(DEAF)
    job = node.start()
    try:
        eventually(lambda: client.show("report").json()["state"] == "held")
        client.force("report")
        assert finished(job)[:2] == (0, "aborted\nrefused\n")
    finally:
        job.kill()


def test_it_mounts_in_an_application_of_fastapi(new_database: NewDatabase, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    bearer = add(str(file), caller("a", ("",), ("hold",)))
    code = block("python mount").replace("/etc/dblock/tokens.toml", str(file))
    names: dict[str, Any] = {"DATABASE_URL": new_database("sqlite", migrated=True).url}

    async def use() -> None:
        exec(compile(code, "service.md", "exec"), names)
        app = names["app"]
        assert isinstance(app, FastAPI)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client,
        ):
            token = new_token()
            body = {"token": token, "ttl": 30}
            headers = {"Authorization": f"Bearer {bearer}"}
            path = "/locks/v1/leases/a%2Fb"
            taken = await client.put(path, json=body, headers=headers)
            assert taken.status_code == 201
            assert (await client.put(path, json=body)).status_code == 401
            locks = names["locks"]
            assert (await locks.show("a/b")).held
            headers["Lock-Token"] = token
            assert (await client.delete(path, headers=headers)).status_code == 204

    asyncio.run(use())
