"""Programs of a queue's page that run side by side, and what their tasks wrote down."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.servers import execute
from tests.support import SECONDS, eventually
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "queues.md"

# What the page's readers have themselves. A report goes on until there is the file "enough".
REPORTS = """
import os, time
from pathlib import Path

HERE = Path(__file__).parent

def note(what):
    with (HERE / "diary").open("a") as diary:
        diary.write(f"{what} {os.getpid()}\\n")

def make_report(fence=None):
    note("begin")
    while not (HERE / "enough").exists():
        time.sleep(0.01)
    note("end")

def clean():
    note("clean")

def parts(customer):
    yield lambda: note(f"bill:{customer}")
"""


def command(start: str) -> str:
    """The page's command that begins like this."""
    lines = [line[2:] for block in blocks(PAGE, "console") for line in block.splitlines()]
    (found,) = [line for line in lines if line.startswith(start)]
    return found


def hour() -> str:
    return f"{datetime.now(UTC):%F %H}"


class Note(NamedTuple):
    what: str
    pid: int


class Crew:
    """Programs in one directory, started as the page says. They end with the test."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, **environment}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.write("reports.py", REPORTS)

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command line in a session of its own; what it says goes into a file."""
        with (self.directory / f"log.{len(self.processes)}").open("wb") as log:
            process = subprocess.Popen(
                command,
                shell=True,
                executable="/bin/bash",
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def run(self, command: str) -> str:
        """Run a command line to its end; return what it said."""
        before = len(self.processes)
        process = self.start(command)
        status = process.wait(SECONDS)
        said = self.log(before)
        assert status == 0, f"{command}\n{said}"
        return said

    def python(self, code: str) -> str:
        self.write("asking.py", code)
        return self.run("python asking.py")

    def logs(self) -> str:
        logs = sorted(self.directory.glob("log.*"))
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in logs)

    def log(self, number: int) -> str:
        """What the program said that was started after so many others."""
        return (self.directory / f"log.{number}").read_text()

    def until_said(self, words: str, times: int = 1) -> None:
        self.until(lambda: self.logs().count(words) >= times)

    def until_noted(self, what: str, times: int = 1) -> None:
        self.until(lambda: len(self.noted(what)) >= times)

    def until(self, condition: Callable[[], bool]) -> None:
        try:
            eventually(condition)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.diary()}\n{self.logs()}") from None

    def _expire(self, when: str) -> None:
        expiry = f"UPDATE dblock_lock SET expires_at = '{when}' WHERE token IS NOT NULL"
        execute(self.environment["DATABASE_URL"], expiry)

    def two_reports(self, refusal: str) -> None:
        """See two reports made, of which one was refused while the other went on."""
        self.until_said(refusal)
        self.until_noted("begin")
        assert [note.what for note in self.diary()] == ["begin"]
        self.enough()
        self.until_noted("end", 2)
        assert [note.what for note in self.diary()] == ["begin", "end"] * 2

    def killed_and_done_again(self, refusal: str = "") -> None:
        """Kill the process that makes a report, and see another make it.

        If there is a ``refusal``, see it while the lease is held, which then runs out.
        """
        self.until_noted("begin")
        (first,) = self.diary()
        if refusal:
            self._expire("2999-01-01")
        os.kill(first.pid, signal.SIGKILL)
        if refusal:
            self.until_said(refusal)
            self._expire("2000-01-01")
        self.until_noted("begin", 2)
        self.enough()
        self.until_noted("end")
        assert [note.what for note in self.diary()] == ["begin", "begin", "end"]
        assert first.pid not in [note.pid for note in self.diary()[1:]]

    @contextlib.contextmanager
    def one_run_an_hour(self, what: str) -> Iterator[None]:
        """All that is done of a kind is done once, or once in each hour that this is in."""
        hours = {hour()}
        yield
        hours.add(hour())
        assert 1 <= len(self.noted(what)) <= len(hours), self.logs()

    def enough(self) -> None:
        """Let the reports end."""
        (self.directory / "enough").touch()

    def diary(self) -> list[Note]:
        file = self.directory / "diary"
        lines = file.read_text().splitlines() if file.exists() else []
        return [Note(what, int(pid)) for what, pid in (line.rsplit(" ", 1) for line in lines)]

    def noted(self, what: str) -> list[Note]:
        return [note for note in self.diary() if note.what == what]

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End a program with TERM, as whoever stops its service does."""
        process.terminate()
        process.wait(SECONDS)

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
