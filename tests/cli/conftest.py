"""The real program, run as a user would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dblock.__main__ import main
from dblock.cli.child import FORWARDED, restored
from tests.conftest import KINDS, Database, NewDatabase, kind_for, lent, needed
from tests.support import SECONDS, eventually

PYTHON = (sys.executable, "-I", "-S", "-c")
# A command that says when it runs, and runs until its standard input ends.
UNTIL_TOLD = ("sh", "-c", "echo started; read line; exit 0")


class Running:
    """A dblock that has been started; its standard streams are pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line that the command writes."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def tell(self) -> None:
        """End the standard input, for which UNTIL_TOLD waits."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> tuple[int, str, str]:
        """Wait for the end: exit code, the rest of standard output, standard error."""
        self.process.wait(SECONDS)  # communicate() would end the standard input before
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err

    def finish(self) -> tuple[int, str, str]:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.tell()
        self.process.stdin = None  # communicate() would flush what is closed
        return self.end()

    def until_waiting(self) -> None:
        """Return when it handles signals as it does while it tries to get the lock, or later."""
        eventually(
            lambda: caught(self.pid).issuperset(FORWARDED) or self.process.poll() is not None
        )

    def close(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.wait()


def caught(pid: int) -> set[int]:
    """The signals that a process has handlers for."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(x for x in status.splitlines() if x.startswith("SigCgt:")).split()[1], 16)
    return {number for number in range(1, 32) if mask >> (number - 1) & 1}


class Program:
    """Runs dblock on one database, or with `url=None` on the default file below `state`."""

    def __init__(self, state: Path, stack: ExitStack, url: str | None = None) -> None:
        self.state = state
        self._stack = stack
        clean = {k: v for k, v in os.environ.items() if not k.startswith("DBLOCK_")}
        self.environment = clean | {"XDG_STATE_HOME": str(state)}
        if url is not None:
            self.environment["DBLOCK_URL"] = url

    def on(self, database: Database) -> Program:
        return Program(self.state, self._stack, database.url)

    def start(
        self,
        *arguments: str,
        program: Sequence[str] = ("-m", "dblock"),
        terminal: int | None = None,
        **options: Any,
    ) -> Running:
        """Start it in a session of its own, its streams being pipes, or its input a terminal."""
        streams = {"stdin": subprocess.PIPE if terminal is None else terminal}
        streams |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running = Running(
            subprocess.Popen(
                [sys.executable, "-W", "error", *program, *arguments],
                text=True,
                env=self.environment,
                **(streams | {"start_new_session": True} | options),
            )
        )
        self._stack.callback(running.close)
        return running

    def holder(self, name: str, *options: str) -> Running:
        """Start a holder of `name`, and return when it has it."""
        running = self.start("run", name, *options, "--", *UNTIL_TOLD)
        assert running.line() == "started"
        return running

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Run it to its end: exit code, standard output, standard error."""
        return self.start(*arguments).finish()


# What a command does with a lock is above the drivers; that it has it, is seen on every kind.
EVERY_KIND = {
    "test_the_command_has_the_lock_and_knows_it",
    "test_verbose_list_and_doctor_name_the_database",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if needed(metafunc, "db"):
        name = metafunc.function.__name__
        one = "dblock" in metafunc.fixturenames and name not in EVERY_KIND
        metafunc.parametrize("db", [kind_for(name)] if one else KINDS, indirect=True)


db = pytest.fixture(lent)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with ExitStack() as stack:
        yield Program(tmp_path / "state", stack)


class Here:
    """Runs dblock in this process: much faster, for what never starts a command."""

    def __init__(self, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capture = capture
        self._patch = patch

    def on(self, database: Database) -> Here:
        self._patch.setenv("DBLOCK_URL", database.url)
        return self

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        with restored(), pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        return ended.value.code, *self._capture.readouterr()


def beside_the_place(err: str) -> str:
    """What is said beside where the locks are."""
    return "".join(line for line in err.splitlines(True) if "locks are in" not in line)


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Here:
    for variable in os.environ:
        # The tests' own say where their servers are, which start later.
        if variable.startswith("DBLOCK_") and not variable.startswith("DBLOCK_TEST_"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Here(capfd, monkeypatch)


@pytest.fixture
def sqlite(program: Program, new_database: NewDatabase) -> Program:
    """dblock on a new SQLite database, where the kind of database does not matter."""
    return program.on(new_database("sqlite", migrated=True))


@pytest.fixture
def dblock(program: Program, db: Database) -> Program:
    """dblock on a new database."""
    return program.on(db)
