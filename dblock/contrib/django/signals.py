"""Django's signals: the settings change, or another database replaces one."""

from __future__ import annotations

from typing import Any

from django.core.signals import setting_changed
from django.db.backends.base.base import NO_DB_ALIAS, BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models.signals import pre_migrate

from .registry import Registry


def connect(registry: Registry[Any]) -> None:
    """Keep the locks of a registry up to date."""

    def forget(*, setting: str, **signal: Any) -> None:
        """A test's ``override_settings(DBLOCK=...)`` needs new locks."""
        if setting in ("DBLOCK", "DATABASES"):
            registry.forget()
            registry.disconnect()

    def before_ddl(*, connection: BaseDatabaseWrapper, **signal: Any) -> None:
        """Django connects to no database: it is about to create, copy or drop a test database."""
        if connection.alias == NO_DB_ALIAS:
            for locks in registry.disconnect():
                locks._database.keeper().stop(locks._database, "a database was made or dropped")

    def before_migrations(*, using: str, **signal: Any) -> None:
        """A test database may have replaced the alias's former database."""
        registry.disconnect(using)

    setting_changed.connect(forget, weak=False)
    connection_created.connect(before_ddl, weak=False)
    pre_migrate.connect(before_migrations, weak=False)
