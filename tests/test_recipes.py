"""The recipes of docs/cron.md: each is read as what it is for reads it, and its command is run."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest
import yaml

from dblock import Locks
from dblock.cli import exits
from tests.conftest import NewDatabase
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "cron.md"
MANIFEST = ROOT / "examples" / "kubernetes" / "nightly.yaml"

# Of systemd.service(5), systemd.exec(5) and systemd.kill(5), those that the examples use.
SETTINGS = {
    "Type",
    "EnvironmentFile",
    "ExecStart",
    "SuccessExitStatus",
    "Restart",
    "RestartSec",
    "KillMode",
    "TimeoutStopSec",
}


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database("sqlite", migrated=True).url


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """What the recipes call /opt/app."""
    (tmp_path / "bin").mkdir()
    dblock = tmp_path / "bin" / "dblock"
    dblock.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dblock "$@"\n')
    scripts = [tmp_path / name for name in ("backup.sh", "sync.sh", "report.sh", "scheduler.sh")]
    for script in scripts:
        script.write_text('#!/bin/sh\necho "ran $DBLOCK_NAME $DBLOCK_SLOT"\n')
    for program in (dblock, *scripts):
        program.chmod(0o755)
    return tmp_path


def last_status(url: str, name: str) -> int | None:
    with Locks(url) as locks:
        last = locks.last_run(name)
    return None if last is None else last.exit_status


def cron(line: str, app: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line of a crontab as cron does: `%` ends the command unless it has a backslash."""
    *schedule, command = line.split(None, 5)
    assert all(re.fullmatch(r"[\d*/,-]+", field) for field in schedule)
    command = re.split(r"(?<!\\)%", command)[0].replace(r"\%", "%")
    command = command.replace("/opt/app", str(app))
    bare = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "HOME": str(app), "LOGNAME": "app"}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        env=bare | environment,
        cwd=app,
        capture_output=True,
        text=True,
        check=False,
    )


def test_crontab(url: str, app: Path) -> None:
    crontab, _ = blocks(PAGE, "crontab")
    lines = [line for line in crontab.splitlines() if line and not line.startswith("#")]
    variables = [line for line in lines if re.match(r"\w+=", line)]
    assert [line.partition("=")[0] for line in variables] == ["DBLOCK_URL"]
    jobs = [line for line in lines if line not in variables]
    assert len(jobs) == 3
    for line in jobs:
        name = line.split("dblock run ")[1].split()[0]
        done = cron(line, app, {"DBLOCK_URL": url})
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"ran {name}")
        if "date" in line:
            assert re.fullmatch(r"ran report \d{4}-W\d\d\n", done.stdout)
        assert last_status(url, name) == 0
        with Locks(url) as locks:
            locks.release(name, force=True)  # which --at-least keeps
        again = cron(line, app, {"DBLOCK_URL": url})
        ran = not re.search("--once-(per|for)", line)
        assert (again.returncode, bool(again.stdout)) == (0, ran)


def test_crontab_with_the_url_in_a_file(url: str, app: Path) -> None:
    variable, line = blocks(PAGE, "crontab")[1].split("\n\n")
    file = app / "url"
    file.write_text(f"{url}\n")
    file.chmod(0o600)
    assert variable == "DBLOCK_URL_FILE=/etc/dblock/url"
    done = cron(line.strip(), app, {"DBLOCK_URL_FILE": str(file)})
    assert (done.returncode, done.stderr) == (0, "")
    assert last_status(url, "nightly") == 0


def test_the_dates_percent_needs_its_backslash(url: str, app: Path) -> None:
    (line,) = [line for line in blocks(PAGE, "crontab")[0].splitlines() if "date" in line]
    assert cron(line.replace("\\%", "%"), app, {"DBLOCK_URL": url}).returncode != 0


def units() -> dict[str, str]:
    return {path.name: path.read_text() for path in (ROOT / "examples" / "systemd").iterdir()}


def test_the_page_has_the_examples() -> None:
    found = units()
    shown = [found["nightly.service"], found["nightly.timer"]]
    assert blocks(PAGE, "ini") == shown
    assert blocks(PAGE, "yaml") == [MANIFEST.read_text()]


def commands(unit: str, app: Path) -> list[str]:
    """The command of a service; what it calls /opt/app is somewhere else."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit)
    assert set(parser["Service"]) <= SETTINGS
    return shlex.split(parser["Service"]["ExecStart"].replace("/opt/app", str(app)))


def test_systemd(url: str, app: Path, tmp_path: Path) -> None:
    found = units()
    assert set(found) == {"nightly.service", "nightly.timer", "scheduler.service"}
    files = []
    for name, text in found.items():
        files.append(tmp_path / name)
        files[-1].write_text(text.replace("/opt/app", str(app)))
    if shutil.which("systemd-analyze"):
        # Beside these it knows only what all units come after: of the machine's own, which it would
        # read as well, any may draw a warning.
        known = tmp_path / "known"
        known.mkdir()
        for target in ("sysinit.target", "basic.target"):
            (known / target).write_text("[Unit]\n")
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *files],
            env=os.environ | {"SYSTEMD_UNIT_PATH": str(known)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    environment = {"PATH": os.defpath, "DBLOCK_URL": url}
    nightly = commands(found["nightly.service"], app)
    with Locks(url) as locks, locks.lease("nightly"):
        busy = subprocess.run(nightly, env=environment, check=False)
        assert f"SuccessExitStatus={busy.returncode}\n" in found["nightly.service"]
        assert busy.returncode == exits.BUSY
    subprocess.run(nightly, env=environment, check=True)
    assert last_status(url, "nightly") == 0
    subprocess.run(commands(found["scheduler.service"], app), env=environment, check=True)
    assert last_status(url, "scheduler") == 0
    assert (
        f"({exits.LOST}), the database is away ({exits.UNAVAILABLE})" in found["scheduler.service"]
    )


def test_kubernetes(url: str, app: Path) -> None:
    job: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [variable["name"] for variable in container["env"]] == ["DBLOCK_URL"]
    command = [word.replace("/opt/app", str(app)) for word in container["command"]]
    environment = {"PATH": f"{app / 'bin'}{os.pathsep}{os.defpath}", "DBLOCK_URL": url}
    for ran in (True, False):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("ran nightly") is ran
    assert last_status(url, "nightly") == 0


class Pings(BaseHTTPRequestHandler):
    """What is called in the place of healthchecks.io."""

    def do_GET(self) -> None:
        cast(PingServer, self.server).paths.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


class PingServer(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Pings)
        self.paths: list[str] = []


@pytest.fixture
def pinged() -> Iterator[PingServer]:
    with PingServer() as server:
        serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield server
        server.shutdown()
        serving.join()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_pings(url: str, app: Path, pinged: PingServer) -> None:
    (crontab,) = blocks(PAGE, "crontab ping")
    variables, line = crontab.strip().split("\n\n")
    assert re.findall(r"^\w+", variables, re.MULTILINE) == ["DBLOCK_URL_FILE", "PING_URL"]
    environment = {
        "DBLOCK_URL": url,
        "PING_URL": f"http://127.0.0.1:{pinged.server_port}/uuid",
        "no_proxy": "*",
    }
    with Locks(url) as locks, locks.lease("nightly"):
        assert cron(line, app, environment).returncode == 0
    assert pinged.paths == []  # by who did nothing
    script = app / "backup.sh"
    good = script.read_text()
    script.write_text("#!/bin/sh\nexit 3\n")
    assert cron(line, app, environment).returncode == 3
    script.write_text(good)
    for _ in range(2):  # the second finds that the slot has succeeded
        with Locks(url) as locks:
            locks.release("nightly", force=True)  # which --at-least keeps
        assert cron(line, app, environment).returncode == 0
    assert pinged.paths == ["/uuid/3", "/uuid/0"]


def test_the_pages_exit_codes_are_the_programs() -> None:
    rows = re.findall(r"^\| (\d+)(?:, (\d+))? \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    codes = {int(code) for row in rows for code in row[:2] if code}
    assert codes == {
        exits.OK,
        exits.FREE,
        exits.USAGE,
        exits.UNAVAILABLE,
        exits.INTERNAL,
        exits.IO,
        exits.BUSY,
        exits.CONFIG,
        exits.LOST,
        exits.NOT_EXECUTABLE,
        exits.NOT_FOUND,
    }
