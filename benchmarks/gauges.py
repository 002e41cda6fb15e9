"""What a server tells of its clients: how many, how busy, how much in the way of vacuum."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from sqlalchemy import make_url

from . import raw
from .site import Site

PATIENCE = 60.0  # how long other sessions may take to end


class Reading(NamedTuple):
    """``requests`` only grows: on PostgreSQL it counts transactions, of one statement each here."""

    connections: int
    requests: int
    #: Sessions whose snapshot keeps vacuum from removing what has been deleted since.
    snapshots: int = 0
    #: How many requests a reading is itself, which the next one counts.
    itself: int = 0


def read(site: Site, url: str) -> Reading:
    """Read a server's gauge; the connection that asks is left out."""
    if url.startswith("postgresql"):
        return _postgresql(site.server("postgresql").url, make_url(url).database)
    if url.startswith("redis"):
        parsed = make_url(url)
        info = _ask(parsed.host, parsed.port, b"INFO\r\n")
        requests = _number(info, "total_commands_processed:")
        return Reading(_number(info, "connected_clients:") - 1, requests, itself=1)
    host, port = url.split(":")
    state = _ask(host, int(port), b"mntr")
    requests = _number(state, "zk_packets_received\t")
    return Reading(_number(state, "zk_num_alive_connections\t") - 1, requests, itself=1)


def _postgresql(maintenance: str, database: str | None) -> Reading:
    # From another database, so that this does not count itself.
    with closing(raw.connect(maintenance, autocommit=True)) as connection:
        row = connection.execute(
            """SELECT count(a.pid), min(d.xact_commit + d.xact_rollback), count(a.backend_xmin)
            FROM pg_stat_database AS d LEFT JOIN pg_stat_activity AS a USING (datid)
            WHERE d.datname = %s""",
            (database,),
        ).fetchone()
    return Reading(*row)


def _ask(host: str | None, port: int | None, question: bytes) -> str:
    with socket.create_connection((host or "127.0.0.1", port or 0), timeout=10) as connection:
        connection.sendall(question)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer.decode()


def _number(text: str, key: str) -> int:
    found = re.search(rf"^{re.escape(key)}(\d+)", text, re.MULTILINE)
    assert found is not None, f"no {key!r} in {text[:200]!r}"
    return int(found[1])


def cpu(pid: int) -> float:
    """Return the seconds of CPU that a process has used, as Linux tells."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Wal(NamedTuple):
    """What was written ahead: bytes, and syncs."""

    size: int
    syncs: int


@contextmanager
def wal_of(url: str, found: list[Wal]) -> Iterator[None]:
    """Append what the server writes meanwhile. Whoever writes has to disconnect before the end."""
    before = _wal(url)
    yield
    after = _wal(url)
    found.append(Wal(after.size - before.size, after.syncs - before.syncs))


def _wal(url: str) -> Wal:
    with closing(raw.connect(url, autocommit=True)) as connection:
        alone = "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()"
        deadline = monotonic() + PATIENCE
        while not connection.execute(alone).fetchone()[0]:
            if monotonic() > deadline:
                raise RuntimeError("another session is connected, so the counts are not complete")
            sleep(0.01)  # a session tells its counts when it ends
        row = connection.execute("SELECT wal_bytes, wal_sync FROM pg_stat_wal").fetchone()
    return Wal(int(row[0]), int(row[1]))
