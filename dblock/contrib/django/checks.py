"""System checks: ``manage.py check`` reports set-ups that would fail later."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management.commands.migrate import Command as MigrateCommand
from django.db import connections

from ...errors import DBLockError, SchemaMissing
from .alias import alias as locks_alias
from .engine import IN_MEMORY, in_memory
from .handles import DjangoLocks, made


def settings_are_right(app_configs: Any, **options: Any) -> list[checks.CheckMessage]:
    """E001: DBLOCK is wrong. E002: dblock does not work on its kind of database."""
    try:
        made(None)
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="dblock.E001")]
    except DBLockError as error:
        return [checks.Error(str(error), id="dblock.E002")]
    return []


def sqlite_serves_one_host(app_configs: Any, **options: Any) -> list[checks.CheckMessage]:
    """W001: a file locks nothing for another host."""
    if connections[locks_alias()].vendor != "sqlite":
        return []
    return [
        checks.Warning(
            "the locks are in SQLite, which serves one host, and one writer at a time",
            hint="for more than one host name a server's database in DBLOCK",
            id="dblock.W001",
        )
    ]


def _migrating() -> bool:
    """Whether ``migrate`` runs the checks, and creates the tables next. Django does not show a
    check which command runs it."""
    frame = inspect.currentframe()
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), MigrateCommand):
            return True
        frame = frame.f_back
    return False


def database_is_ready(
    app_configs: Any, databases: Sequence[str] | None = None, **options: Any
) -> list[checks.CheckMessage]:
    """W003: no tables, and it is not ``migrate`` that asks. W004: in memory. E003: not reached, or
    not supported. W002: a pooler that Django's settings do not mention.

    It runs only with ``check --database`` and in ``migrate``, as Django's own checks of databases.
    """
    alias = locks_alias()
    if alias not in (databases or ()):
        return []
    if in_memory(connections[alias]):
        # Not an error: the test database of a project that takes no lock in its tests.
        hint = 'give a file; for tests in DATABASES[...]["TEST"]["NAME"]'
        return [checks.Warning(f"{alias!r} {IN_MEMORY}", hint=hint, id="dblock.W004")]
    try:
        # Closed at once: a check's open connection would block dropping the database.
        with DjangoLocks(alias) as locks:
            locks.last_run("dblock")
            own = locks._database.connections.take()
            locks._database.connections.give(own)
    except SchemaMissing as error:
        if _migrating():
            return []  # it is about to make them
        message = f"the tables of the locks are missing in {alias!r}: {error}"
        hint = f"manage.py migrate dblock --database {alias}"
        return [checks.Warning(message, hint=hint, id="dblock.W003")]
    except DBLockError as error:
        return [checks.Error(str(error), id="dblock.E003")]
    settings = connections[alias].settings_dict
    pooled = own.session.end is None and connections[alias].vendor == "postgresql"
    if pooled and not settings.get("DISABLE_SERVER_SIDE_CURSORS"):
        return [
            checks.Warning(
                f"{alias!r} is behind a pooler. Leases and row locks work there; Django's "
                "server-side cursors do not",
                hint="DISABLE_SERVER_SIDE_CURSORS = True in its settings",
                id="dblock.W002",
            )
        ]
    return []
