"""Servers that the tests start themselves."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy.exc import SQLAlchemyError

from tests.patience import SECONDS
from tests.servers import reaper
from tests.servers.base import Server, ServerFailed, ServerMissing
from tests.servers.watch import forget, watch

ROOM = 4 << 30  # the servers of four processes of tests, and more


class OwnServer(Server):
    """A server process in its own throw-away directory, on its own port of 127.0.0.1."""

    stop_signal: ClassVar[signal.Signals]
    name: ClassVar[str]
    address: ClassVar[str] = "127.0.0.1"

    def __init__(self, durable: bool = False) -> None:
        """What is ``durable`` is on disk, and waits for it."""
        if not Path("/proc/self/stat").exists():
            raise ServerMissing(self.name, "the tests' own servers need Linux (/proc)")
        self.durable = durable
        self._claims: list[socket.socket] = []
        self.port = self._claim_port()
        self.directory = make_directory(on_disk=durable)
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def _claim_port(self) -> int:
        """Return a port that stays this server's until it is closed, also while it is down."""
        self._claims.append(claim_port())
        return port_of(self._claims[-1])

    @abstractmethod
    def _prepare(self) -> None:
        """Create the data directory."""

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """The server's command line, which has to contain `self.directory`."""

    @abstractmethod
    def _probe(self) -> None:
        """Raise SQLAlchemyError or OSError unless the server answers."""

    @property
    def pids(self) -> list[int]:
        """All processes of the server, the main process first."""
        return list(reaper.processes(self.directory.name))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.running:
            return
        if not self.data.exists():
            self._prepare()
        with self.log.open("ab") as log:
            command = [*self._through(), *self._command()]
            self._process = subprocess.Popen(command, stdout=log, **self._options())
        try:
            self._wait_until_ready()
        except ServerFailed:
            self.kill()
            raise

    def begin_to_stop(self) -> None:
        """Ask for a clean shutdown, and do not wait for it."""
        assert self._process is not None
        self._process.send_signal(self.stop_signal)

    def stop(self) -> None:
        if self._process is None:
            return
        self.resume()
        self.begin_to_stop()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure("did not stop") from None
        finally:
            self.kill()

    def kill(self) -> None:
        reaper.kill(self.directory.name)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def copy(self) -> Path:
        """Copy the data of the server, which must not run; return the folder of the copy."""
        copy = self.directory / f"copy-{time.monotonic_ns()}"
        self._run("cp", "-a", self.data, copy)
        return copy

    def restore(self, copy: Path) -> None:
        """Replace the data of the server, which must not run, with a copy, which stays."""
        shutil.rmtree(self.data)
        self._run("cp", "-a", copy, self.data)

    def pause(self) -> None:
        deadline = time.monotonic() + SECONDS
        # Repeated, because the first signals may cross with the start of a new child.
        while awake := [pid for pid, state in self._states().items() if state != "T"]:
            for pid in awake:
                reaper.send(pid, signal.SIGSTOP)
            if time.monotonic() > deadline:
                raise self._failure("did not pause")
            time.sleep(0.005)

    def resume(self) -> None:
        for pid in self.pids:
            reaper.send(pid, signal.SIGCONT)

    def close(self) -> None:
        # The data goes too, so a clean shutdown would be time wasted.
        self.kill()
        for claim in self._claims:
            claim.close()
        reaper.discard(self.directory)
        forget(self.directory)

    def _states(self) -> dict[int, str]:
        return reaper.processes(self.directory.name)

    def _run(self, *command: str | Path) -> None:
        """Run a program that sets the server up, as the server's user."""
        with self.log.open("ab") as log:
            done = subprocess.run(
                [*self._through(), *command], stdout=log, timeout=SECONDS, **self._options()
            )
        if done.returncode != 0:
            raise self._failure(f"set-up: {Path(command[0]).name} failed")

    def _through(self) -> Sequence[str]:
        """The command, if any, that starts the server's programs."""
        return ()

    def _options(self) -> dict[str, Any]:
        # No setting of the developer's own servers may reach these.
        mine = ("PG", "MYSQL", "MARIADB")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(mine)}
        # Nor the time zone that Django sets for the whole process of its tests.
        environment |= {"HOME": str(self.directory), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stderr": subprocess.STDOUT,
            "cwd": self.directory,
            "env": environment,
            "start_new_session": True,  # a Ctrl-C is for the tests, not for the server
        }
        if os.geteuid() == 0:
            user = server_user()
            options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        return options

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                self._probe()
            except (SQLAlchemyError, OSError) as error:
                if time.monotonic() > deadline:
                    raise self._failure(f"does not answer: {error}") from None
            else:
                # If it has exited, then what answered is another server on the same port.
                if self.running:
                    return
            if not self.running:
                raise self._failure("exited at its start")
            time.sleep(0.05)

    def _failure(self, what: str) -> ServerFailed:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return ServerFailed("\n".join([f"{self.name} {what}; its log ends:", *lines[-20:]]))


def reachable(path: Path) -> bool:
    """Whether the user that the servers run as can read `path`."""
    if os.geteuid() != 0:
        return os.access(path, os.R_OK)
    wanted = stat.S_IXOTH
    return all(p.stat().st_mode & wanted for p in (path, *path.resolve().parents))


def server_user() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


def make_directory(*, on_disk: bool = False) -> Path:
    """Make a directory for a server, which goes when this process goes; in memory if possible."""
    # Sockets live in it, whose paths are limited to 107 bytes.
    wanted = (None if on_disk else _memory(), Path(tempfile.gettempdir()))
    fit = (place for place in wanted if place and reachable(place) and len(str(place)) < 60)
    directory = Path(tempfile.mkdtemp(prefix="dblock-", dir=next(fit, Path("/tmp"))))
    watch(directory)
    directory.chmod(0o755)
    if os.geteuid() == 0:
        user = server_user()
        os.chown(directory, user.pw_uid, user.pw_gid)
    return directory


def _memory() -> Path | None:
    """Where files are in memory, if there is room for them; a container often has very little."""
    place = Path("/dev/shm")
    with contextlib.suppress(OSError):
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(meminfo["MemAvailable"].split()[0])
        if os.access(place, os.W_OK) and min(free, shutil.disk_usage(place).free) > ROOM:
            return place
    return None


def claim_port() -> socket.socket:
    """Return a socket with a port that no other test takes until the socket is closed.

    It does not listen, so a server that sets SO_REUSEADDR, as servers do, can use the port, and
    connections are refused while none does.
    """
    while True:
        claim = socket.socket()
        # Below the ports that the kernel gives to outgoing connections: one of those could connect
        # to itself there. The option comes after bind: with it, two could claim the same port.
        try:
            claim.bind(("127.0.0.1", random.SystemRandom().randrange(20000, 32000)))
        except OSError:
            claim.close()
            continue
        claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return claim


def port_of(claim: socket.socket) -> int:
    return int(claim.getsockname()[1])


def free_port() -> int:
    """Return a port that is free now, for a server that is started once."""
    with claim_port() as claim:
        return port_of(claim)
