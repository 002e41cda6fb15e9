"""An application of a user's, with Alembic migrations of its own, in a directory."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config

from dblock.protocol.schema_version import SCHEMA_VERSION

ROOT = Path(__file__).parents[2]
#: dblock's newest revision.
HEAD = f"dblock_{SCHEMA_VERSION:04}"

INI = """\
[alembic]
script_location = %(here)s/migrations
path_separator = newline
{more}
"""

# What `alembic init` writes, shortened.
ENV = """\
import os
from alembic import context
from sqlalchemy import MetaData, create_engine, pool
{imports}

target_metadata = MetaData()
engine = create_engine(os.environ["DATABASE_URL"], poolclass=pool.NullPool)
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=target_metadata{options})
    {run}
"""

PLAIN = "with context.begin_transaction(): context.run_migrations()"

REVISION = """\
import os
from alembic import op
from sqlalchemy import Column, Integer
{imports}

revision = {revision!r}
down_revision = {down!r}
branch_labels = depends_on = None

def upgrade():
    with open(os.environ["RAN"], "a") as ran:
        ran.write(revision + "\\n")
    {upgrade}

def downgrade():
    {downgrade}
"""

# Six pods that start at once: forked from one, since imports take longer than migrations.
SEVERAL = """\
import os, sys
from alembic import command
from alembic.config import Config
import psycopg, pymysql, dblock.schema

children = []
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        command.upgrade(Config(sys.argv[1]), "heads")
        sys.stdout.flush()
        os._exit(0)
    children.append(child)
failed = [child for child in children if os.waitpid(child, 0)[1]]
sys.exit(len(failed))
"""


class Project:
    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.ran = directory / "ran"
        self.versions = directory / "migrations" / "versions"
        self.processes: list[subprocess.Popen[str]] = []
        self.versions.mkdir(parents=True)
        self.ran.touch()
        template = ROOT / "migrations" / "script.py.mako"
        (directory / "migrations" / "script.py.mako").write_text(template.read_text())
        self.configure()
        self.env()

    def configure(self, more: str = "") -> None:
        (self.directory / "alembic.ini").write_text(INI.format(more=more))

    def env(self, run: str = PLAIN, *, imports: str = "", options: str = "") -> None:
        text = ENV.format(run=run, imports=imports, options=options)
        (self.directory / "migrations" / "env.py").write_text(text)

    def revision(
        self,
        revision: str,
        down: str | tuple[str, ...] | None,
        upgrade: str,
        downgrade: str = "pass",
        imports: str = "",
    ) -> None:
        text = REVISION.format(
            revision=revision, down=down, upgrade=upgrade, downgrade=downgrade, imports=imports
        )
        (self.versions / f"{revision}.py").write_text(text)

    def start(self, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self.directory,
            env={**os.environ, "DATABASE_URL": self.url, "RAN": str(self.ran)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def end(self) -> None:
        """Let no process of the test's outlive it."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def alembic(self, name: str, *arguments: Any, **options: Any) -> str:
        """Run a command of Alembic's in this process; return what it printed."""
        out = io.StringIO()
        config = Config(self.directory / "alembic.ini", stdout=out)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DATABASE_URL", self.url)
            patch.setenv("RAN", str(self.ran))
            getattr(command, name)(config, *arguments, **options)
        return out.getvalue()

    def several(self, number: int) -> subprocess.Popen[str]:
        """Start so many that upgrade at once."""
        return self.start("-c", SEVERAL, "alembic.ini", str(number))

    def revisions_run(self) -> list[str]:
        return self.ran.read_text().split()
