"""The server of ``dblock serve``: uvicorn, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from types import FrameType

try:
    import httptools  # noqa: F401
    import uvicorn
except ImportError as error:
    raise ImportError(f"dblock serve needs {error.name}: pip install 'dblock[serve]'") from error

from .application import Application
from .connections import ClientConnections

#: Seconds that a client may take to send a request.
REQUEST = 10.0
#: Seconds that a connection may be idle. Proxies and load balancers close theirs after 60.
IDLE = 75
#: Seconds that requests under way have when the service stops. Waits end at once.
STOP = 15
#: Files that the process needs beside its connections.
_BESIDE = 256


def context(certificate: str, key: str | None = None) -> ssl.SSLContext:
    """Return what TLS needs to serve with a certificate. Raises OSError if it cannot be used."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(certificate, key)
    return made


class Server(uvicorn.Server):
    """uvicorn, which ends the waits of the application when it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        application: Application,
        tls: ssl.SSLContext | None,
        ready: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._application = application
        self._tls = tls
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, as uvicorn does, and also limit how long TLS takes to begin and to end."""
        await self.lifespan.startup()
        loop, patience = asyncio.get_running_loop(), None if self._tls is None else REQUEST
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=listening,
                ssl=self._tls,
                backlog=self.config.backlog,
                ssl_handshake_timeout=patience,
                ssl_shutdown_timeout=patience,
            )
            for listening in sockets or ()
        ]
        self.started = True
        self._ready()

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop, or with a second SIGINT stop at once.

        uvicorn would raise the signal again at the end, and nothing could be tidied up after it.
        """
        self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.stop()
        await super().shutdown(sockets)
        await self._application.service.locks.close()


def run(
    application: Application,
    listening: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    connections: int = 1000,
    ready: Callable[[], object] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT. Then close the application's locks."""
    _allow_files(connections + _BESIDE)
    # A request with a fault is the client's matter, and would fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        application,
        http=ClientConnections(connections, REQUEST).protocol,  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=STOP,
    )
    Server(config, application, tls, ready).run([listening])


def _allow_files(needed: int) -> None:
    """Raise the limit of open files, as far as the system lets."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
