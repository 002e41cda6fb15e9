"""dblock's revisions: where they are, and how other migrations run them: Alembic's, Django's, or
any other tool's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Column, MetaData, String, Table
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateTable, PrimaryKeyConstraint


def migrations() -> Path:
    """Return the directory of the migrations (an Alembic script location)."""
    package = Path(__file__).parent.parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def config(schema: str | None, prefix: str) -> Config:
    """Return Alembic's configuration for the migrations, with the place of the tables."""
    made = Config()
    made.set_main_option("script_location", str(migrations()).replace("%", "%%"))
    made.attributes["schema"] = schema
    made.attributes["prefix"] = prefix
    return made


def create(
    op: Any,
    revision: str,
    *,
    since: str = "base",
    schema: str | None = None,
    prefix: str = "dblock_",
) -> None:
    """Create dblock's tables as of ``revision``, in a revision of your own.

    ``op`` is Alembic's. ``since`` is the revision that the tables are at. Give it in a later
    revision that upgrades them: ``create(op, "dblock_0004", since="dblock_0003")``.
    """
    context = _beside(op.get_context(), schema, prefix)
    for script in reversed(_between(since, revision)):
        _run(script, context, "upgrade")


def drop(
    op: Any,
    revision: str,
    *,
    since: str = "base",
    schema: str | None = None,
    prefix: str = "dblock_",
) -> None:
    """Undo :func:`create` with the same arguments. Fences of dropped tables are lost."""
    context = _beside(op.get_context(), schema, prefix)
    for script in _between(since, revision):
        _run(script, context, "downgrade")


def statements(
    backend: str,
    revision: str,
    *,
    since: str = "base",
    schema: str | None = None,
    prefix: str = "dblock_",
    down: bool = False,
) -> list[str]:
    """Return the SQL statements of :func:`create`, or of :func:`drop` with ``down``. No I/O.

    ``backend`` is SQLAlchemy's name of the database: ``"postgresql"``, ``"mariadb"``, ``"mysql"``
    or ``"sqlite"``. MariaDB runs the ones for ``"mysql"`` as well. The statements do not touch a
    version table.
    """
    said = _Said()
    options = {"as_sql": True, "output_buffer": said, **_place(schema, prefix)}
    context = MigrationContext.configure(dialect_name=backend, opts=options)
    scripts = _between(since, revision)
    for script in scripts if down else reversed(scripts):
        _run(script, context, "downgrade" if down else "upgrade")
    return said.statements


def printed(dialect: Dialect, revision: str, *, schema: str | None, prefix: str) -> list[str]:
    """Return the statements that create the tables, with the version table of ``dblock upgrade``.

    They can be run again, from the first on.
    """
    version = Table(
        f"{prefix}version",
        MetaData(),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{prefix}version_pkc"),
        schema=schema,
    )
    name = dialect.identifier_preparer.format_table(version)
    return [
        str(CreateTable(version, if_not_exists=True).compile(dialect=dialect)).strip(),
        *statements(dialect.name, revision, schema=schema, prefix=prefix),
        f"DELETE FROM {name}",
        f"INSERT INTO {name} (version_num) VALUES ('{revision}')",
    ]


class _Said:
    """Collects what Alembic prints, one statement at a time."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def write(self, text: str) -> None:
        self.statements.append(text.strip().removesuffix(";"))

    def flush(self) -> None:
        pass


def _between(since: str, revision: str) -> list[Script]:
    """Return the revisions after one up to another, the newest first, freshly loaded."""
    directory = ScriptDirectory.from_config(config(None, ""))
    found: Iterator[Any] = directory.iterate_revisions(revision, since)
    return list(found)


def _run(script: Script, context: MigrationContext, direction: str) -> None:
    # An `op` of its own, because the module-wide one belongs to the migration around it.
    module: Any = script.module
    module.op = Operations(context)
    getattr(module, direction)()


def _place(schema: str | None, prefix: str) -> dict[str, Any]:
    return {"dblock_schema": schema, "dblock_prefix": prefix}


def _beside(context: MigrationContext, schema: str | None, prefix: str) -> MigrationContext:
    """Return a context on the same connection, or printing to the same place."""
    options = {**context.opts, **_place(schema, prefix)}
    return MigrationContext(context.dialect, context.connection, options)
