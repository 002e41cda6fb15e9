"""What the tab key does, as docs/operators.md sets it up."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import socket
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from dblock import Locks
from tests.cli.conftest import Program
from tests.conftest import Database
from tests.support import SECONDS, eventually
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "operators.md"


def completed(program: Program, *words: str) -> list[str]:
    """What bash gets for the last word; dblock is silent otherwise, and succeeds."""
    program.environment |= {
        "_DBLOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": "\n".join(["dblock", *words]),
        "COMP_CWORD": str(len(words)),
    }
    code, out, err = program()
    assert (code, err) == (0, ""), (code, out, err)
    return [line.removeprefix("plain,") for line in out.splitlines() if line]


def soon(program: Program, names: set[str], *words: str) -> None:
    """These are completed, if not at once: a busy machine may take longer than the patience."""
    eventually(lambda: set(completed(program, *words)) == names)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_page_has_a_line_for_each_shell(program: Program, shell: str) -> None:
    (block,) = blocks(PAGE, shell)
    source = f"{shell}_source"
    assert f"_DBLOCK_COMPLETE={source} dblock" in block
    program.environment["_DBLOCK_COMPLETE"] = source
    code, out, err = program()
    assert (code, err) == (0, "")
    assert f"_DBLOCK_COMPLETE={shell}_complete" in out


class Bash:
    """A bash on a terminal that has read the page's line."""

    def __init__(self, program: Program) -> None:
        bash = shutil.which("bash")
        assert bash is not None
        bin = Path(sys.executable).parent
        pid, self.terminal = pty.fork()
        if pid == 0:
            program.environment |= {"PATH": f"{bin}:{os.environ['PATH']}", "TERM": "dumb"}
            os.execve(bash, [bash, "--norc", "--noprofile", "-i"], program.environment)
        self.pid = pid
        self.type(f"PS1=; {blocks(PAGE, 'bash')[0]}")
        self.type("echo rea''dy\n")
        self.until("ready\r\n")

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def until(self, shown: str) -> str:
        """Read until this is shown. If bash rings the bell, there was no completion: on a busy
        machine dblock's own limit is over first. So the Tab key is pressed again."""
        seen = ""
        while shown not in seen:
            ready, _, _ = select.select([self.terminal], [], [], SECONDS)
            assert ready, seen
            came = os.read(self.terminal, 10_000).decode()
            seen += came.replace("\a", "")  # which may be between two parts of a completed word
            if came.endswith("\a"):
                self.type("\t")
        return seen

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def test_bash_completes_as_the_page_says(sqlite: Program) -> None:
    with (
        Locks(sqlite.environment["DBLOCK_URL"]) as locks,
        locks.lease("order:42"),
        locks.lease("a b"),
        closing(Bash(sqlite)) as bash,
    ):
        bash.type("echo dblo''ck; dblock rel\t")
        bash.until("release ")
        bash.type("ord\t")
        bash.until("order:42 ")
        bash.type("\x15dblock show order:4\t")
        bash.until("order:42 ")
        bash.type("\x15dblock show --js\t")
        bash.until("--json ")
        bash.type("\n")


def test_names_of_locks_and_jobs(program: Program, db: Database) -> None:
    words = ["report", "report%1", "report_2", "repört", "r*", "re port", "re'port", "-report"]
    program = program.on(db)
    with Locks(db.url) as locks:
        locks.cron("reports:daily")(lambda: None)()
        leases = [locks.lease(name) for name in words]
        for lease in leases:
            lease.acquire()
        found = {"report", "report%1", "report_2", "reports:daily"}
        for command in ("show", "run", "release"):
            soon(program, {*found, "repört"}, command, "")
            soon(program, found, command, "repo")
        soon(program, {"report%1"}, "show", "report%")
        soon(program, {"daily"}, "show", "reports", ":", "d")
        soon(program, {"daily"}, "show", "reports", ":")
        del program.environment["DBLOCK_URL"]
        url = re.split("([:@=]+)", f"--url={db.url}")  # as bash takes it apart
        soon(program, {"report_2"}, *url, "show", "report_")
        for lease in leases:
            lease.release()


def test_commands_and_options(program: Program) -> None:
    assert completed(program, "up") == ["upgrade"]
    assert completed(program, "--u") == ["--url", "--url-file"]
    assert completed(program, "run", "--at") == ["--at-least", "--at-most"]
    assert completed(program, "run", "--once-per", "m") == ["minute", "month"]
    assert completed(program, "run", "--once-per", "=", "d") == ["day"]
    assert completed(program, "list", "--url-file", "/et") == ["file,/et"]
    assert completed(program, "run", "a", "--", "l") == ["file,l"]
    assert completed(program, "run", "a", "--", "ls", "--") == ["file,--"]


def test_completing_makes_no_file_and_no_tables(program: Program, tmp_path: Path) -> None:
    assert completed(program, "show", "") == []
    assert not program.state.exists()
    missing, strange = tmp_path / "missing.db", tmp_path / "strange.db"
    assert completed(program, "show", "--url", f"sqlite:///{missing}", "") == []
    assert not missing.exists()
    with closing(sqlite3.connect(strange)) as connection:
        connection.execute("CREATE TABLE theirs (id)")
        connection.commit()
    before = strange.read_bytes()
    assert completed(program, "show", "--url", f"sqlite:///{strange}", "") == []
    assert strange.read_bytes() == before
    assert sorted(path.name for path in tmp_path.glob("*.db*")) == ["strange.db"]


@pytest.mark.parametrize("url", ["nope", "postgresql://127.0.0.1:1/db", "nosuch://host/db", "x://"])
def test_nothing_is_said_where_there_is_no_database(program: Program, url: str) -> None:
    program.environment["DBLOCK_URL"] = url
    assert completed(program, "show", "") == []
    program.environment["DBLOCK_PREFIX"] = "a-b"
    assert completed(program, "show", "") == []


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_server_that_never_answers_holds_no_shell_up(program: Program, kind: str) -> None:
    """It takes as long as without an answer to wait for, and the patience."""
    begun = time.monotonic()
    assert completed(program, "show", "--url", "postgresql://127.0.0.1:1/db", "") == []
    refused = time.monotonic() - begun
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begun = time.monotonic()
        assert completed(program, "show", "--url", f"{kind}://u:p@127.0.0.1:{port}/db", "") == []
        assert time.monotonic() - begun < 5 * refused + 5


def test_a_url_file_that_never_ends_holds_no_shell_up(program: Program, tmp_path: Path) -> None:
    fifo = tmp_path / "url"
    os.mkfifo(fifo, 0o600)
    assert completed(program, "show", "--url-file", str(fifo), "") == []


def test_a_variable_that_is_set_but_empty_completes_nothing(program: Program) -> None:
    plain = program("nosuch")
    program.environment["_DBLOCK_COMPLETE"] = ""
    assert program("nosuch") == plain
    assert plain[0] == 64
