"""The server of ``dblock serve``: uvicorn, and how it stops."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

try:
    import httptools  # noqa: F401
    import uvicorn
except ImportError as error:
    raise ImportError(f"dblock serve needs {error.name}: pip install 'dblock[serve]'") from error

from .application import Application
from .connections import Connections

#: Seconds that a client may take to send a request.
REQUEST = 10.0
#: Seconds that a connection may be idle. Proxies and load balancers close theirs after 60.
IDLE = 75
#: Seconds that requests under way have when the service stops. Waits end at once.
STOP = 15
#: Files that the process needs beside its connections.
_BESIDE = 256


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of the certificate and of its key."""

    certificate: str
    key: str | None = None


class Server(uvicorn.Server):
    """uvicorn, which ends the waits of the application when it stops."""

    def __init__(
        self, config: uvicorn.Config, application: Application, ready: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._application = application
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.stop()
        await super().shutdown(sockets)
        await self._application.service.locks.close()


def run(
    application: Application,
    listening: socket.socket,
    *,
    tls: Tls | None = None,
    connections: int = 1000,
    ready: Callable[[], object] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT. Then close the application's locks."""
    _allow_files(connections + _BESIDE)
    # A request with a fault is the client's matter, and would fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        application,
        http=Connections(connections, REQUEST).protocol,  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=STOP,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    Server(config, application, ready).run([listening])


def _allow_files(needed: int) -> None:
    """Raise the limit of open files, as far as the system lets."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
