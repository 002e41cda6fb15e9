"""Two network namespaces joined by a cable on which packets can vanish without a word.

Each end knows the other's hardware address for good (static ARP). A cut replaces it by one that
nobody has: packets leave, nobody takes them, no reset and no ICMP comes back, and the link itself
stays up. That is what a broken switch, a dropping firewall or a pulled cable farther on look like.

Root needs no more than the tools; anybody else needs a kernel that lets users make namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from types import TracebackType
from typing import Self

from tests.servers import reaper, switch
from tests.servers.base import ServerFailed, ServerMissing
from tests.servers.own import make_directory
from tests.servers.watch import forget

TOOLS = ("ip", "nsenter", "unshare")
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
NOWHERE = "02:00:00:00:00:99"


class End:
    """One end of the cable: its namespace, by a process in it, and its addresses."""

    def __init__(self, number: int) -> None:
        self.address = f"10.213.7.{number}"
        self.hardware = f"02:00:00:00:00:0{number}"
        self.device = f"end{number}"
        self.pid = 0

    def run(self, *, user: int | None = None, group: int | None = None) -> list[str]:
        """Return the command that runs the one after it here, as the user if root asks for one."""
        command = [_tool("nsenter"), f"--target={self.pid}", "--net"]
        if os.geteuid() != 0:
            command += ["--user", "--preserve-credentials"]
        elif user is not None:
            command += [f"--setuid={user}", f"--setgid={group}"]
        return [*command, "--"]


class Network:
    """A server's end and a client's end."""

    def __init__(self) -> None:
        missing = [tool for tool in TOOLS if not _find(tool)]
        if missing:
            raise ServerMissing("Network", f"no {' and '.join(missing)} (apt install iproute2)")
        self.directory = make_directory()  # by its name the reaper finds all that runs here
        self.server, self.client = End(1), End(2)
        new_user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
        script = (sys.executable, "-I", switch.__file__)
        self._switch = subprocess.Popen(
            [_tool("unshare"), *new_user, "--net", "--", *script, str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": PLACES},
            start_new_session=True,
        )
        assert self._switch.stdout is not None
        peer = self._switch.stdout.readline()
        if not peer:
            assert self._switch.stderr is not None
            why = self._switch.stderr.read().strip().splitlines()
            self.close()
            raise ServerMissing(
                "Network",
                "this user cannot make network namespaces, which root can, or anybody where the "
                f"kernel allows user namespaces ({why[-1] if why else 'unshare failed'})",
            )
        self.server.pid, self.client.pid = self._switch.pid, int(peer)

    def __enter__(self) -> Self:
        try:
            self._lay()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _lay(self) -> None:
        here, there = self.server, self.client
        peer = ("peer", "name", there.device, "netns", str(there.pid))
        self._at(here, "link", "add", here.device, "type", "veth", *peer)
        for end in (here, there):
            self._at(end, "link", "set", end.device, "address", end.hardware)
            self._at(end, "address", "add", f"{end.address}/24", "dev", end.device)
            self._at(end, "link", "set", "lo", "up")
            self._at(end, "link", "set", end.device, "up")
        self.restore()

    def cut(self, *, requests: bool = True, replies: bool = True) -> None:
        """Lose what the client sends, what the server sends, or both, from now on."""
        if requests:
            self._point(self.client, self.server, NOWHERE)
        if replies:
            self._point(self.server, self.client, NOWHERE)

    def restore(self) -> None:
        """Let all packets through."""
        self._point(self.client, self.server, self.server.hardware)
        self._point(self.server, self.client, self.client.hardware)

    def _point(self, end: End, other: End, hardware: str) -> None:
        to = ("to", other.address, "lladdr", hardware, "dev", end.device, "nud", "permanent")
        self._at(end, "neighbour", "replace", *to)

    def _at(self, end: End, *arguments: str) -> None:
        """Run ``ip`` at one end."""
        command = ["ip", *arguments]
        if end is not self.server:
            command = ["nsenter", f"--target={end.pid}", "--net", "--", *command]
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(f"{json.dumps(command)}\n")
        self._switch.stdin.flush()
        code, output = json.loads(self._switch.stdout.readline())
        if code != 0:
            raise ServerFailed(f"ip {' '.join(arguments)}: {output.strip()}")

    def close(self) -> None:
        """End what runs at both ends, and the namespaces with it."""
        reaper.discard(self.directory)
        self._switch.communicate()
        forget(self.directory)


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=PLACES)


def _tool(tool: str) -> str:
    found = _find(tool)
    assert found is not None
    return found
