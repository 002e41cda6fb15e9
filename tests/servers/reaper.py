"""Finds and ends the processes of a test server; as a script, outlives the tests to do so.

The script reads from its standard input the directories of the servers that a test process
starts (`+directory`) and deletes (`-directory`). Only that process holds the other end of the
pipe, so the pipe ends exactly when the process does, SIGKILL included; whatever is on the
list then is killed and deleted.

Every process of a server shows the unique name of the server's directory in its command line
(PostgreSQL's children, which rewrite theirs, show it as `cluster_name`). That finds them all,
even in sessions of their own, and is safe when process ids are used again. Standard library
only: the script runs without the project on its path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def processes(token: str) -> dict[int, str]:
    """The live processes of the server in the directory named `token`: pid -> state.

    Oldest first: signalling in this order reaches the main process before it can react to
    what happens to its children. The state is the letter of `/proc/PID/stat`.
    """
    parents: dict[int, int] = {}
    states: dict[int, str] = {}
    started: dict[int, int] = {}
    found: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_bytes()
            command = Path("/proc", entry, "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        # The second field, the program's name in parentheses, may itself hold anything.
        fields = stat.rpartition(b")")[2].split()
        state = fields[0].decode()
        if state in "ZX":
            continue
        pid = int(entry)
        parents[pid], states[pid], started[pid] = int(fields[1]), state, int(fields[19])
        if token.encode() in command:
            found.add(pid)
    # Set-up programs such as initdb have helpers which do not name the directory.
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: states[pid] for pid in sorted(found, key=lambda pid: (started[pid], pid))}


def send(pid: int, signal_number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)


def kill(token: str, seconds: float = 60) -> None:
    """SIGKILL the server in the directory named `token`, until no process of it is left."""
    deadline = time.monotonic() + seconds
    while found := processes(token):
        for pid in found:
            send(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {list(found)} of {token} survive SIGKILL")
        time.sleep(0.01)


def discard(directory: Path) -> None:
    """Kill the server in `directory` and delete all that it leaves behind."""
    kill(directory.name)
    _free_shared_memory(directory / "data" / "postmaster.pid")
    shutil.rmtree(directory, ignore_errors=True)


def _free_shared_memory(pid_file: Path) -> None:
    """Remove the SysV segment a killed PostgreSQL leaves; the kernel would keep it for ever."""
    try:
        segment = pid_file.read_text().splitlines()[6].split()[1]
        owner = pid_file.stat().st_uid if os.geteuid() == 0 else None
        subprocess.run(["ipcrm", "-m", segment], user=owner, capture_output=True, check=False)
    except (OSError, IndexError):  # no PostgreSQL, stopped cleanly, or no ipcrm
        pass


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.chdir("/")
    directories: set[str] = set()
    for line in sys.stdin:
        sign, directory = line[0], line[1:].rstrip("\n")
        if sign == "+":
            directories.add(directory)
        else:
            directories.discard(directory)
    for directory in sorted(directories):
        with contextlib.suppress(OSError):  # one failure must not spare the others
            discard(Path(directory))


if __name__ == "__main__":
    main()
