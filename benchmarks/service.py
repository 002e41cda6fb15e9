"""What a request costs the lock service, beside a bare answer of the same HTTP server.

The load is wrk's: a client in Python would be the slower side.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from tests.contrib.serve.process import Service
from tests.servers import ServerMissing

from .figures import Effort, Figure, Sheet, Target
from .gauges import cpu
from .site import Site

GROUP, SCENARIO = "service", "take and release by HTTP, 96 names, postgresql"
BARE = "uvicorn, a bare 204"
HEALTH = "dblock serve, GET /healthz"
LOGGED, SILENT = "dblock serve", "dblock serve --no-access-log"
CONNECTIONS = 8

TARGETS: tuple[Target, ...] = ()

_PAIRS = Path(__file__).with_name("pairs.lua")
_DONE = re.compile(r"requests=(\d+) wrong=(\d+) p50=(\d+) p99=(\d+)")
_BARE = """
import uvicorn

async def bare(scope, receive, send):
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        status = 201 if scope["method"] == "PUT" else 204
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body"})

config = uvicorn.Config(bare, port=0, http="httptools", loop="uvloop", lifespan="off",
    log_config=None, access_log=False, server_header=False, proxy_headers=False)
with config.bind_socket() as socket:
    print(socket.getsockname()[1], flush=True)
    uvicorn.Server(config).run([socket])
"""


class Load(NamedTuple):
    """What one run of wrk found. CPU is that of the process that answers, in seconds."""

    rate: float
    cpu: float
    p50: float
    p99: float


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """One process of the service; its CPU does not depend on how busy the machine is."""
    if shutil.which("wrk") is None:
        raise ServerMissing("the service", "no wrk on this machine (apt install wrk)")
    sheet = Sheet(GROUP, SCENARIO)
    with ExitStack() as stack:
        running: dict[str, tuple[str, int]] = {BARE: stack.enter_context(_bare())}
        asked = {HEALTH: ("health",)}
        for _, url in site.urls(("postgresql",)):
            for who, options in ((SILENT, ("--no-access-log",)), (LOGGED, ())):
                service = Service(url, *options)
                stack.callback(service.close)
                running[who] = service.address, service.process.pid
            running[HEALTH] = running[LOGGED]
        for _ in range(effort.rounds):
            for who, (address, pid) in running.items():
                load = _load(address, pid, effort.loop, *asked.get(who, ()))
                sheet.add(who, "CPU a request", "ms", load.cpu * 1e3)
                sheet.add(who, "requests", "/s", load.rate)
                sheet.add(who, "p50", "ms", load.p50 * 1e3)
                sheet.add(who, "p99", "ms", load.p99 * 1e3)
    yield from sheet.figures()


def _load(address: str, pid: int, seconds: float, *arguments: str) -> Load:
    before, began = cpu(pid), monotonic()
    many = str(CONNECTIONS)
    command = ("wrk", "-t", many, "-c", many, "-d", f"{max(1, round(seconds))}s", "-s", str(_PAIRS))
    done = subprocess.run(
        (*command, f"http://{address}", "--", *arguments),
        capture_output=True,
        text=True,
        check=True,
    )
    took, spent = monotonic() - began, cpu(pid) - before
    found = _DONE.search(done.stdout)
    if found is None:
        raise RuntimeError(f"wrk says: {done.stdout}")
    requests, wrong, p50, p99 = map(int, found.groups())
    if wrong:
        raise RuntimeError(f"{wrong} of {requests} requests got another answer")
    return Load(requests / took, spent / requests, p50 / 1e6, p99 / 1e6)


@contextmanager
def _bare() -> Iterator[tuple[str, int]]:
    with subprocess.Popen(
        (sys.executable, "-c", _BARE), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}", process.pid
        finally:
            process.kill()
