"""The address of the service: a host and a port, or a Unix socket."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass

PORT = 8700
_UNIX = "unix:"
_BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Bind:
    """A host and a port; or the path of a Unix socket."""

    host: str = "127.0.0.1"
    port: int = PORT
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Bind:
        """Parse ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``. Raises ValueError."""
        if text.startswith(_UNIX):
            path = text.removeprefix(_UNIX)
            if not path:
                raise ValueError(f"{text!r} names no file: give unix:/run/dblock/http.sock")
            return cls(path=path)
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text!r} is not HOST:PORT: put an IPv6 address into brackets")
        if not colon or not host or not (port.isascii() and port.isdecimal()):
            raise ValueError(f"{text!r} is not HOST:PORT, [IPV6]:PORT or unix:PATH")
        if int(port) > 65535:
            raise ValueError(f"a port is at most 65535: {text!r}")
        return cls(host, int(port))

    @property
    def local(self) -> bool:
        """Whether only programs of this host can reach it."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name, which may resolve to any address
            return False

    def listen(self) -> socket.socket:
        """Return a socket that listens there. Raises OSError."""
        if self.path is not None:
            return self._listen_on_file(self.path)
        found = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family, backlog=_BACKLOG)

    @staticmethod
    def _listen_on_file(path: str) -> socket.socket:
        # A client needs the right to write to the file. The umask grants that to the owner alone,
        # or to the group too.
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_unused(path)
            made.bind(path)
            made.listen(_BACKLOG)
        except BaseException:
            made.close()
            raise
        return made

    @contextlib.contextmanager
    def removed_afterwards(self) -> Iterator[None]:
        """Remove the socket file at the end, unless another process has created a new one."""
        made = None if self.path is None else _made(self.path)
        try:
            yield
        finally:
            if self.path is not None:
                with contextlib.suppress(FileNotFoundError):
                    if _made(self.path) == made:
                        os.unlink(self.path)

    def describe(self, listening: socket.socket) -> str:
        """Name it for people, with the port that the system has chosen for port 0."""
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        host, port = listening.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _made(path: str) -> tuple[int, int, int]:
    """Return the identity of a file, which a later file with its path does not have. The inode's
    number alone would not do: it is used again."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _remove_unused(path: str) -> None:
    """Remove the socket file of a process that was killed. Raises OSError if one listens there."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "the file exists and is not a socket", path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        else:
            raise OSError(errno.EADDRINUSE, "another process listens there", path)
