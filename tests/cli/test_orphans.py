"""What the command leaves behind comes to dblock if it is a container's first process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Here, Program, Running
from tests.support import SECONDS, eventually

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no subreapers")

DBLOCK = 'os.execv(sys.executable, [sys.executable, "-m", "dblock", *sys.argv[1:]])'
SUBREAPER = f"""
import ctypes, os, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
{DBLOCK}
"""
ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
FIRST = f"""
import os, sys
alone = {ALONE!r} if os.geteuid() == 0 else {(*ALONE, "--user", "--map-root-user")!r}
os.execvp(alone[0], [*alone, sys.executable, "-m", "dblock", *sys.argv[1:]])
"""
INHERITS = f"""
import os, sys
for _ in range(3):
    os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ)
{DBLOCK}
"""
# Leaves three processes behind, whose parents have ended, and goes on until it is told to end.
LEAVES = ("sh", "-c", "for i in 1 2 3; do (sleep 600 &) done; echo started; read line; exit 3")


def children(parent: int, name: str = "sleep") -> list[int]:
    """The children of that name, those among them that have ended and were not waited for."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            told, _, rest = entry.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(rest.split()[1]) == parent and told.partition("(")[2] == name:
            found.append(int(entry.parent.name))
    return found


def is_first_possible() -> bool:
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    try:
        return subprocess.run([*ALONE, *user, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def end(orphans: list[int]) -> None:
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)


def pid_of(holder: Running, how: str) -> int:
    """The pid of dblock itself, as it is here."""
    if how == SUBREAPER:
        return holder.pid
    (pid,) = {
        int(entry.parent.name)
        for entry in Path("/proc").glob("[0-9]*/stat")
        if int(entry.read_text().rpartition(")")[2].split()[1]) == holder.pid
    }
    return pid


@pytest.mark.parametrize("how", [SUBREAPER, FIRST], ids=["subreaper", "first process"])
def test_orphans_of_the_command_are_reaped(sqlite: Program, how: str) -> None:
    """And the command's own status is that of the command."""
    if how == FIRST and not is_first_possible():
        pytest.skip("a pid namespace of its own needs unshare, and a kernel that lets this user")
    holder = sqlite.start("run", "a", "--", *LEAVES, program=("-c", how))
    assert holder.line() == "started"
    dblock = pid_of(holder, how)
    eventually(lambda: len(children(dblock)) == 3)
    end(children(dblock)[:1])
    eventually(lambda: len(children(dblock)) == 2)
    end(children(dblock))
    eventually(lambda: not children(dblock))
    assert holder.finish() == (3, "", "")


def test_orphans_do_not_take_the_commands_status(sqlite: Program) -> None:
    """They end at the same time as it does."""
    script = "for i in 1 2 3 4; do (true &) done; exit 3"
    runs = [
        sqlite.start("run", f"a{i}", "--", "sh", "-c", script, program=("-c", SUBREAPER))
        for i in range(6)
    ]
    assert [run.finish() for run in runs] == [(3, "", "")] * 6


def test_what_ends_while_dblock_waits_for_the_lock_is_reaped(sqlite: Program) -> None:
    """As children of a shell that has made dblock of itself, or of a probe in the container."""
    holder = sqlite.holder("a")
    waiter = sqlite.start("run", "a", "--", "echo", "ran", program=("-c", INHERITS))
    eventually(lambda: len(children(waiter.pid)) == 3)
    end(children(waiter.pid))
    eventually(lambda: not children(waiter.pid))
    assert holder.finish() == (0, "", "")
    assert waiter.finish() == (0, "ran\n", "")


def test_a_program_that_runs_a_command_of_dblocks_keeps_its_children(here: Here) -> None:
    """As Django's call_command does: what it waits for is not for dblock to wait for."""
    mine = subprocess.Popen(["sh", "-c", "exit 7"])
    os.waitid(os.P_PID, mine.pid, os.WEXITED | os.WNOWAIT)
    assert here("run", "a", "--", "true")[0] == 0
    assert mine.wait(SECONDS) == 7
