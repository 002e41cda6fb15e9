"""The recipes of docs/cron.md: each is read as what it is for reads it, and its command is run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dblock import Locks
from dblock.cli import exits
from tests.conftest import NewDatabase
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "cron.md"


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database("sqlite", migrated=True).url


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """What the recipes call /opt/app."""
    (tmp_path / "bin").mkdir()
    dblock = tmp_path / "bin" / "dblock"
    dblock.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dblock "$@"\n')
    scripts = [tmp_path / name for name in ("backup.sh", "sync.sh", "report.sh")]
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
        ran = not re.search("--once-per", line)
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
    return {block.split("\n")[0].removeprefix("# "): block for block in blocks(PAGE, "ini")}


def test_systemd(url: str, app: Path, tmp_path: Path) -> None:
    found = units()
    assert set(found) == {"nightly.service", "nightly.timer"}
    files = []
    for name, text in found.items():
        files.append(tmp_path / name)
        files[-1].write_text(text.replace("/opt/app", str(app)))
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *files],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    service = found["nightly.service"].replace("/opt/app", str(app))
    (command,) = re.findall(r"^ExecStart=(.*)", service, re.MULTILINE)
    environment = {"PATH": os.defpath, "DBLOCK_URL": url}
    with Locks(url) as locks, locks.lease("nightly"):
        busy = subprocess.run(shlex.split(command), env=environment, check=False)
        assert f"SuccessExitStatus={busy.returncode}\n" in service
        assert busy.returncode == exits.BUSY
    subprocess.run(shlex.split(command), env=environment, check=True)
    assert last_status(url, "nightly") == 0


def test_kubernetes(url: str, app: Path) -> None:
    (text,) = blocks(PAGE, "yaml")
    job: dict[str, Any] = yaml.safe_load(text)
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


def test_the_pages_exit_codes_are_the_programs() -> None:
    rows = re.findall(r"^\| (\d+)(?:, (\d+))? \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    codes = {int(code) for row in rows for code in row[:2] if code}
    assert codes == {
        exits.OK,
        exits.USAGE,
        exits.UNAVAILABLE,
        exits.INTERNAL,
        exits.BUSY,
        exits.SCHEMA,
        exits.LOST,
        exits.NOT_EXECUTABLE,
        exits.NOT_FOUND,
    }
