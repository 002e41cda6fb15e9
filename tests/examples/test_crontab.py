"""examples/crontab: what cron runs on three hosts with one database."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples.site import EXAMPLES, command, environment
from tests.support import SECONDS, Threads
from tests.test_recipes import cron

# Keeps a user's crontab, as the program of that name does.
CRONTAB = '#!/bin/sh\nif [ "$1" = -l ]; then cat "$HOME/tab"; else cat >"$HOME/tab"; fi\n'


class Hosts:
    """Hosts with the example's crontab, all sharing one file system."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.place = home / "example"
        shutil.copytree(EXAMPLES / "crontab", self.place)
        (home / "bin").mkdir()
        (home / "bin" / "crontab").write_text(CRONTAB)
        (home / "bin" / "crontab").chmod(0o755)
        self.env = environment(home)
        self.env["PATH"] = f"{home / 'bin'}:{self.env['PATH']}"
        self.env["DBLOCK_URL"] = f"sqlite:///{home}/locks.db"
        self.run(command("crontab", "./install"))
        tab = (home / "tab").read_text().splitlines()
        lines = [line for line in tab if line and not line.startswith("#")]
        self.variables = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
        jobs = [line for line in lines if not re.match(r"[A-Z_]+=", line)]
        self.jobs = {line.split("dblock run ")[1].split()[0]: line for line in jobs}

    def run(self, line: str) -> str:
        done = subprocess.run(
            line, shell=True, cwd=self.place, env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cron(self, job: str) -> tuple[int, str]:
        """What cron sees of a job: its exit status, and what it would mail."""
        done = cron(self.jobs[job], self.home, self.variables)
        return done.returncode, done.stdout + done.stderr

    def backups(self) -> dict[str, int]:
        """The backups' names, which are days, and files: a day's second run makes another file."""
        found = {file.name: file.stat().st_ino for file in self.place.glob("backups/*.tar.gz")}
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\d\.tar\.gz", name) for name in found)
        return found


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_crontab(hosts: Hosts, threads: Threads) -> None:
    assert set(hosts.jobs) == {"backup", "tidy"}
    assert hosts.cron("tidy") == (0, "")
    data = hosts.place / "data"
    data.rename(hosts.place / "elsewhere")
    status, mail = hosts.cron("backup")
    assert status != 0
    assert "data" in mail
    assert not hosts.backups()
    (hosts.place / "elsewhere").rename(data)
    hosts.run("dblock release backup --force")  # --at-least would keep it for five minutes

    runs = [threads.start(hosts.cron, "backup") for _ in range(3)]
    assert [run.result(SECONDS) for run in runs] == [(0, "")] * 3
    made = hosts.backups()
    assert len(made) == 1
    hosts.run("dblock release backup --force")
    assert hosts.cron("backup") == (0, "")  # the day's is made
    old = hosts.place / "backups" / "2000-01-01.tar.gz"
    old.touch()
    os.utime(old, (0, 0))
    assert hosts.cron("tidy") == (0, "")
    assert not old.exists()
    assert hosts.backups().items() >= made.items()  # more at midnight only
    assert "exit status 0" in hosts.run(f"{command('crontab', 'dblock show')} || true")
